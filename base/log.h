#ifndef CKPT_BASE_LOG_H
#define CKPT_BASE_LOG_H
/*
 * What the daemon says after it has left the terminal: one line an event, to stderr while in the
 * foreground and to syslog afterwards. Thread-safe. `key` makes an event be said once: later calls
 * with the same key string are dropped (a file that shrank would otherwise log once a read).
 */
void ckpt_log(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void ckpt_log_once(const char *key, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* After the fork: to syslog instead of stderr. */
void ckpt_log_to_syslog(void);

#endif
