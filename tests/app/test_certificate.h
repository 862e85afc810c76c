// A self-signed certificate for 127.0.0.1 and localhost, made anew for each test that needs one.
//
// Thread-safety: pure function. Errors: a failed expectation.
#ifndef DEEPINFER_TESTS_APP_TEST_CERTIFICATE_H_
#define DEEPINFER_TESTS_APP_TEST_CERTIFICATE_H_

#include <filesystem>
#include <string>

namespace deepinfer {

struct TestCertificate {
  std::string certificate;  ///< file, PEM
  std::string key;          ///< file, PEM

  /// Writes both into `folder`.
  static TestCertificate Make(const std::filesystem::path& folder);
};

}  // namespace deepinfer

#endif  // DEEPINFER_TESTS_APP_TEST_CERTIFICATE_H_
