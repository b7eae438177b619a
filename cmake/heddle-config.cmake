# find_package(heddle): the target heddle::heddle is libheddle.so with the header heddle.h.
include("${CMAKE_CURRENT_LIST_DIR}/heddle-targets.cmake")
