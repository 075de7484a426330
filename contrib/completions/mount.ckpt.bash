# bash completion for mount.ckpt(8). mount-tests/style/check_options.py holds its words against the program's own table.

_mount_ckpt_options='layout= dialect= root= prefix= map= map_file= kind= contiguous= contiguous_except= cast= modules= include= exclude=
    rules= expect= strict keep_going graph= reference= chain= atol= rtol= verify_memory= device= cache= threads= nomt direct_io passthrough list= lora=
    allow_other allow_root auto_unmount fsname= fg uid= gid= umask= nofail'
_mount_ckpt_flags='--inspect --explain --verify --export --cat --json --foreground --verbose --help --version'

# The values of an option; nothing: they are the user's own.
_mount_ckpt_values() { # NAME PART
    case $1 in
    layout) compgen -W 'burn torch source' -- "$2" ;;
    dialect) compgen -W 'auto torch flax openpi burn' -- "$2" ;;
    prefix) compgen -W 'strip keep' -- "$2" ;;
    contiguous) compgen -W 'auto on off' -- "$2" ;;
    cast) compgen -W 'auto keep f32 f16 bf16 f64' -- "$2" ;;
    modules) compgen -W 'nn store' -- "$2" ;;
    list) compgen -W 'all tree' -- "$2" ;;
    lora) compgen -W 'merge refuse' -- "$2" ;;
    device) compgen -W 'cpu' -- "$2" ;;
    map_file | rules | expect | graph | reference) compgen -f -- "$2" ;;
    uid) compgen -u -- "$2" ;;
    gid) compgen -g -- "$2" ;;
    esac
}

# The last option of a list with commas. readline replaces what follows the last `=` only, so each reply begins with what
# stands between that and the part to complete.
_mount_ckpt_list() { # LIST WORD-OF-READLINE
    local option=${1##*,} part kept reply
    if [[ $option == *=* ]]; then
        part=${option#*=}
        mapfile -t COMPREPLY < <(_mount_ckpt_values "${option%%=*}" "$part")
    else
        part=$option
        mapfile -t COMPREPLY < <(compgen -W "$_mount_ckpt_options" -- "$part")
    fi
    kept=${2%"$part"}
    for reply in "${!COMPREPLY[@]}"; do COMPREPLY[reply]=$kept${COMPREPLY[reply]}; done
    compopt -o nospace 2>/dev/null
}

_mount_ckpt() {
    local line=${COMP_LINE:0:COMP_POINT} word before previous readline=${COMP_WORDS[COMP_CWORD]}
    word=${line##*[[:space:]]}
    before=${line%"$word"}
    before=${before%"${before##*[![:space:]]}"}
    previous=${before##*[[:space:]]}
    [[ $readline == [=:] ]] && readline=
    COMPREPLY=()
    case $previous,$word in
    -o,*) _mount_ckpt_list "$word" "$readline" ;;
    *,-o*) _mount_ckpt_list "${word#-o}" "${readline#-o}"
        [[ $readline == -o* ]] && COMPREPLY=("${COMPREPLY[@]/#/-o}") ;;
    --cat,* | --explain,*) ;; # a name in the checkpoint
    *,-*) mapfile -t COMPREPLY < <(compgen -W "$_mount_ckpt_flags -o -f -n -s -v" -- "$word") ;;
    *) mapfile -t COMPREPLY < <(compgen -f -- "$word")
        compopt -o filenames 2>/dev/null ;;
    esac
}

complete -F _mount_ckpt mount.ckpt
