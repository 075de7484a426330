# fish completion for mount.ckpt(8). mount-tests/style/check_options.py holds its words against the program's own table.

function __mount_ckpt_options
    # All options, each with what was typed before the last comma, and the values of those that have a few.
    set -l kept (string match -r '.*,' -- (commandline -ct | string replace -r '^-o' ''))
    printf "$kept%s\t%s\n" \
        layout=burn "burn's names and layout" layout=torch "PyTorch's" layout=source "the file as it is" \
        dialect=auto "by the file" dialect=torch "PyTorch's conventions" dialect=flax "flax's" dialect=openpi "openpi's" dialect=burn "burn's" \
        root= "the part that is the model" \
        prefix=strip "take wrapper prefixes off" prefix=keep "keep them" \
        map= "rename: REGEX=>NEW" \
        map_file= "rename by the patterns of a file" \
        kind= "what a module is: REGEX=>KIND" \
        contiguous=auto "renumber list indices by rule" contiguous=on "renumber list indices" contiguous=off "leave list indices" \
        contiguous_except= "keys whose indices stay" \
        cast=auto "dtype of floats by rule" cast=keep "as in the file" cast=f32 "float32" cast=f16 "float16" cast=bf16 "bfloat16" cast=f64 "float64" \
        modules=nn "adapt every layer burn has" modules=store "adapt what burn's importer does" \
        include= "show what matches" \
        exclude= "leave out what matches" \
        rules= "an adapter of your own" \
        expect= "parameters of a burn model to check against" \
        strict "warnings are errors" \
        keep_going "bad tensors are left out" \
        graph= "the graph of the model" \
        reference= "recorded inputs and outputs" \
        chain= "the order in which modules run: A:B:C" \
        atol= "absolute tolerance" \
        rtol= "relative tolerance" \
        verify_memory= "what a check may use" \
        device=cpu "where to compute" \
        cache= "memory for what has to be decoded" \
        threads= "how many threads serve" \
        nomt "one thread" \
        direct_io "bypass the page cache" \
        passthrough "the kernel reads what is the source itself" \
        list=all "list the hidden files too" list=tree "list the tree" \
        lora=merge "add LoRA's factors" lora=refuse "an error" \
        allow_other "let all users in" \
        allow_root "let root in" \
        auto_unmount "unmount when the daemon ends" \
        fsname= "the source in /proc/mounts" \
        fg "stay in the foreground" \
        uid= "owner of all files" \
        gid= "group of all files" \
        umask= "mode bits to take away" \
        nofail "a missing source is no error"
end

complete -c mount.ckpt -s o -x -a '(__mount_ckpt_options)' -d options
complete -c mount.ckpt -l inspect -d 'what would be shown'
complete -c mount.ckpt -l explain -x -d 'why a tensor becomes what it does'
complete -c mount.ckpt -l verify -d 'the forward check'
complete -c mount.ckpt -l export -r -d 'write the adapted model to a file'
complete -c mount.ckpt -l cat -x -d 'print one file of the tree'
complete -c mount.ckpt -l json -d 'as JSON'
complete -c mount.ckpt -l foreground -d 'stay in the foreground'
complete -c mount.ckpt -s v -l verbose -d 'say what was mounted, or more of a check'
complete -c mount.ckpt -l help -d 'how it is used'
complete -c mount.ckpt -l version -d 'which version this is'
complete -c mount.ckpt -s f -d 'check everything, mount nothing'
complete -c mount.ckpt -s n -d 'there is no mtab to write'
complete -c mount.ckpt -s s -d 'ignore unknown options'
