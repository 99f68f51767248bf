# find_package(autopipe CONFIG REQUIRED PATHS <exported folder>), then target_link_libraries(... autopipe::autopipe)
get_filename_component(AUTOPIPE_FOLDER "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
if(NOT TARGET autopipe::autopipe)
  add_library(autopipe::autopipe SHARED IMPORTED)
  set_target_properties(autopipe::autopipe PROPERTIES
    IMPORTED_LOCATION "${AUTOPIPE_FOLDER}/lib/libautopipe.so"
    INTERFACE_INCLUDE_DIRECTORIES "${AUTOPIPE_FOLDER}/include")
endif()
