# What was found, printed and kept in features.txt: a test compares its names with a list, so that a
# library that silently went missing fails the build instead of a user's mount.
function(ckpt_write_features)
  set(text "")
  foreach(row ${ARGN})
    string(REPLACE "=" ";" row ${row})
    list(GET row 0 name)
    list(GET row 1 prefix)
    string(APPEND text "${name} ${${prefix}_VERSION}\n")
    message(STATUS "feature: ${name} ${${prefix}_VERSION}")
  endforeach()
  file(WRITE ${PROJECT_BINARY_DIR}/features.txt "${text}")
endfunction()
