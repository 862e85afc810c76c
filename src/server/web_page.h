// WebPage: the page at "/", one HTML file that holds all its script and style (docs/web-page.md).
//
// The file is src/server/web/index.html, built from web/ and committed; the program holds it as it is. Thread-safety:
// any thread. Ownership: the text lives as long as the program.
#ifndef DEEPINFER_SERVER_WEB_PAGE_H_
#define DEEPINFER_SERVER_WEB_PAGE_H_

#include <string_view>

namespace deepinfer {

std::string_view WebPage();

}  // namespace deepinfer

#endif  // DEEPINFER_SERVER_WEB_PAGE_H_
