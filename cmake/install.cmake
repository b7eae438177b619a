# What `cmake --install` puts where. The components are those of the Debian packages (deploy/packages.sh): client, server, worker, lib, dev.
# Nothing installed names a path of the build, so that a prefix can be chosen at installation and moved afterwards.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

install(TARGETS heddle RUNTIME COMPONENT client)
install(TARGETS heddle-scheduler heddle-tracker heddle-sim RUNTIME COMPONENT server)
install(PROGRAMS deploy/heddle-ca TYPE BIN COMPONENT server)
install(DIRECTORY deploy/autoscaler deploy/slurm deploy/kubernetes deploy/prometheus deploy/grafana
  DESTINATION ${CMAKE_INSTALL_DATADIR}/heddle COMPONENT server
  FILES_MATCHING PATTERN "*.py" PATTERN "*.toml" PATTERN "*.sbatch" PATTERN "*.yaml" PATTERN "*.yml" PATTERN "*.json")
install(TARGETS heddle-worker RUNTIME COMPONENT worker)
install(FILES README.md LICENSE TYPE DOC COMPONENT client)
install(DIRECTORY docs TYPE DOC COMPONENT client)
# docs/python.md leads there.
install(FILES python/README.md DESTINATION ${CMAKE_INSTALL_DOCDIR}/python COMPONENT client)
install(DIRECTORY examples TYPE DOC COMPONENT dev)
install(FILES deploy/systemd/heddle-scheduler.service deploy/systemd/heddle-scheduler-standby.service deploy/systemd/heddle-tracker.service
  DESTINATION lib/systemd/system COMPONENT server)
install(FILES deploy/systemd/heddle-worker.service DESTINATION lib/systemd/system COMPONENT worker)

# The runtime: libheddle.so, its header, and how CMake and pkg-config find them.
install(TARGETS heddle_shared EXPORT heddle
  LIBRARY COMPONENT lib NAMELINK_COMPONENT dev
  INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(FILES compiler/runtime/heddle.h TYPE INCLUDE COMPONENT dev)
install(EXPORT heddle NAMESPACE heddle:: FILE heddle-targets.cmake
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/heddle COMPONENT dev)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/heddle-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES cmake/heddle-config.cmake ${CMAKE_BINARY_DIR}/heddle-config-version.cmake
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/heddle COMPONENT dev)
file(RELATIVE_PATH HEDDLE_PREFIX_OF_PC "/prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig" /prefix)
configure_file(cmake/heddle.pc.in ${CMAKE_BINARY_DIR}/heddle.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/heddle.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT dev)

# Man pages and completion, written by the programs themselves. A build with sanitizers installs none: there a program may report leaks
# when it ends.
if(HEDDLE_SANITIZE)
  return()
endif()
set(share ${CMAKE_BINARY_DIR}/share)
file(MAKE_DIRECTORY ${share})
# Defaults that lie in the user's home are shown as such.
set(anybody ${CMAKE_COMMAND} -E env --unset=XDG_CACHE_HOME --unset=XDG_DATA_HOME --unset=HEDDLE_SERVER --unset=HEDDLE_CODE_CACHE
  --unset=HEDDLE_MACHINE HOME=~)

function(heddle_written_by program file folder component)
  add_custom_command(OUTPUT ${share}/${file}
    COMMAND ${anybody} $<TARGET_FILE:${program}> ${ARGN} > ${share}/${file}
    DEPENDS ${program} VERBATIM)
  install(FILES ${share}/${file} DESTINATION ${folder} COMPONENT ${component})
  set_property(GLOBAL APPEND PROPERTY heddle_written ${share}/${file})
endfunction()

set(man ${CMAKE_INSTALL_MANDIR}/man1)
heddle_written_by(heddle heddle.1 ${man} client --man-page)
heddle_written_by(heddle-scheduler heddle-scheduler.1 ${man} server --man-page)
heddle_written_by(heddle-tracker heddle-tracker.1 ${man} server --man-page)
heddle_written_by(heddle-sim heddle-sim.1 ${man} server --man-page)
heddle_written_by(heddle-worker heddle-worker.1 ${man} worker --man-page)
install(FILES deploy/heddle-ca.1 DESTINATION ${man} COMPONENT server)
# The file names by which the shells look for the completion of `heddle`.
heddle_written_by(heddle heddle ${CMAKE_INSTALL_DATADIR}/bash-completion/completions client completion bash)
heddle_written_by(heddle _heddle ${CMAKE_INSTALL_DATADIR}/zsh/site-functions client completion zsh)
heddle_written_by(heddle heddle.fish ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d client completion fish)
get_property(written GLOBAL PROPERTY heddle_written)
add_custom_target(installed_texts ALL DEPENDS ${written})
