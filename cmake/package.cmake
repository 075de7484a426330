# What `cmake --install` puts in place beside the program, and the Debian package of just that:
# `cpack -G DEB --config build-release/CPackConfig.cmake`.
find_program(GZIP gzip REQUIRED)
set(CMAKE_SKIP_INSTALL_ALL_DEPENDENCY ON) # who packs or installs has built; the tests need not be
set(CKPT_DOC ${CMAKE_INSTALL_DATADIR}/doc/mount.ckpt)

function(ckpt_gzip source packed)
  add_custom_command(OUTPUT ${packed} COMMAND ${GZIP} -9nc ${PROJECT_SOURCE_DIR}/${source} > ${packed}
                     DEPENDS ${source} VERBATIM)
endfunction()
ckpt_gzip(docs/mount.ckpt.8 mount.ckpt.8.gz)
ckpt_gzip(contrib/changelog changelog.gz)
file(CREATE_LINK mount.ckpt.8.gz ${PROJECT_BINARY_DIR}/mount.fuse.ckpt.8.gz SYMBOLIC)
add_custom_target(texts ALL DEPENDS mount.ckpt.8.gz changelog.gz)
add_dependencies(mount.ckpt texts) # who builds just the program can install it

install(FILES ${PROJECT_BINARY_DIR}/mount.ckpt.8.gz ${PROJECT_BINARY_DIR}/mount.fuse.ckpt.8.gz
        DESTINATION ${CMAKE_INSTALL_MANDIR}/man8)
install(FILES ${PROJECT_BINARY_DIR}/changelog.gz DESTINATION ${CKPT_DOC})
install(FILES README.md contrib/copyright DESTINATION ${CKPT_DOC})
install(DIRECTORY docs DESTINATION ${CKPT_DOC}
        FILES_MATCHING PATTERN *.md PATTERN *.json)
install(FILES contrib/fstab contrib/auto.ckpt contrib/systemd/mnt-model.mount
              contrib/systemd/mnt-model.automount DESTINATION ${CKPT_DOC}/examples)
install(PROGRAMS contrib/ckpt-reference.py contrib/ckpt-matrix DESTINATION ${CKPT_DOC}/examples)
# Not below LIBDIR: systemd and the shells look in these folders, whatever the architecture.
install(FILES contrib/systemd/mount.ckpt@.service DESTINATION lib/systemd/system)
install(FILES contrib/completions/mount.ckpt.bash RENAME mount.ckpt
        DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
install(FILES contrib/completions/_mount.ckpt
        DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/vendor-completions)
install(FILES contrib/completions/mount.ckpt.fish
        DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME mount.ckpt)
set(CPACK_PACKAGE_CONTACT "mount.ckpt maintainers <maintainers@mount-ckpt.invalid>" CACHE STRING
    "Maintainer of the Debian package")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "mount model checkpoints as read-only trees of tensors")
set(CPACK_DEBIAN_PACKAGE_DESCRIPTION
    "mount.ckpt shows the tensors of a PyTorch, safetensors, burnpack or Orbax
checkpoint as files, named and laid out as another framework wants them, and
checks whether the adapted model still computes the same. It works with
mount(8), fstab, autofs and systemd. No Python, no PyTorch, and nothing in the
file is ever executed.")
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION utils)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
# What dpkg-shlibdeps can't see: fusermount3, for all but root, and what a check loads when it begins.
set(CPACK_DEBIAN_PACKAGE_DEPENDS "fuse3, libopenblas0")
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_STRIP_FILES ON)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS
    OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
include(CPack)
