# cmake -DOUT=FILE.c -DFILES=a.json,b.json -P embed.cmake
# Writes the files as byte arrays and the table of them.
string(REPLACE "," ";" FILES "${FILES}")
set(arrays "")
set(table "")
foreach(file IN LISTS FILES)
  get_filename_component(name ${file} NAME_WE)
  string(MAKE_C_IDENTIFIER ${name} id)
  file(READ ${file} hex HEX)
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
  string(APPEND arrays "static const unsigned char ${id}[] = {${bytes}};\n")
  string(APPEND table "    {\"${name}\", ${id}, sizeof ${id}},\n")
endforeach()
file(WRITE ${OUT} "#include \"adapters/builtin_rules.h\"\n\n${arrays}
const struct ckpt_builtin_rules ckpt_builtin_rules[] = {\n${table}    {NULL, NULL, 0},\n};\n")
