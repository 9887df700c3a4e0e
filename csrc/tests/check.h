// EXPECT prints what does not hold and goes on; a test program ends with `return failures();`.
#pragma once

#include <cmath>
#include <cstdio>
#include <sstream>
#include <string>

inline int& failed_checks() {
  static int count = 0;
  return count;
}

inline void report(const char* file, int line, const std::string& what) {
  std::printf("%s:%d: %s\n", file, line, what.c_str());
  ++failed_checks();
}

// Exit code of a test program.
inline int failures() { return failed_checks() == 0 ? 0 : 1; }

#define EXPECT(condition) \
  do {                   \
    if (!(condition)) report(__FILE__, __LINE__, #condition " does not hold"); \
  } while (false)

template <typename A, typename B>
void check_equal(const char* file, int line, const char* what, const A& found, const B& wanted) {
  if (found == wanted) return;
  std::ostringstream text;
  text << what << " is " << found << ", want " << wanted;
  report(file, line, text.str());
}

#define EXPECT_EQUAL(found, wanted) check_equal(__FILE__, __LINE__, #found, found, wanted)

// Largest distance allowed: `tolerance`; NaN is never near.
inline void check_near(const char* file, int line, const char* what, double found, double wanted, double tolerance) {
  if (std::fabs(found - wanted) <= tolerance) return;
  std::ostringstream text;
  text.precision(9);
  text << what << " is " << found << ", want " << wanted << " within " << tolerance;
  report(file, line, text.str());
}

#define EXPECT_NEAR(found, wanted, tolerance) check_near(__FILE__, __LINE__, #found, found, wanted, tolerance)
