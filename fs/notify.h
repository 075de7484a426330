#ifndef CKPT_FS_NOTIFY_H
#define CKPT_FS_NOTIFY_H
/*
 * Tells a service manager how it goes: the protocol of sd_notify(3), one datagram of NAME=value
 * lines to the socket that $NOTIFY_SOCKET names. It is documented as stable and for anybody to
 * speak, and is 20 lines here; libsystemd would be a dependency for them. Without such a socket,
 * or with a manager that is gone, nothing happens.
 */
void ckpt_notify(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* STOPPING=1, once: when told to end, while readers may still take their time, or when ending. */
void ckpt_notify_stopping(void);

#endif
