// Debian compiles the archive of ICU for programs, not for shared objects: its code for time zones, which nothing here
// calls, reaches for two variables of libc in a way that a shared object cannot. The linker is told (--wrap) to give it
// these, names as the linker wants them.
extern "C" {
extern long __wrap___timezone;  // NOLINT
extern char* __wrap_tzname[2];  // NOLINT
long __wrap___timezone = 0;     // NOLINT
char* __wrap_tzname[2] = {};    // NOLINT
}
