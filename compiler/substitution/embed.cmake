# cmake -DIN=rules.txt -DOUT=rules.cc -P embed.cmake: the file as an array of characters. It is too long for one string literal.
file(READ ${IN} hex HEX)
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
string(REGEX REPLACE "(................................................................................)" "\\1\n" bytes "${bytes}")
file(WRITE ${OUT} "namespace heddle::substitution {\nextern const char kShippedRules[];\nconst char kShippedRules[] = {\n${bytes}0};\n}  // namespace heddle::substitution\n")
