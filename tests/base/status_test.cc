// Status and Result: values, messages, propagation.
#include "deepinfer/status.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

namespace deepinfer {
namespace {

TEST(StatusTest, OkByDefault) {
  EXPECT_TRUE(Status().ok());
  EXPECT_TRUE(Status::Ok().ok());
  EXPECT_EQ(Status::Ok().code(), StatusCode::kOk);
  EXPECT_EQ(Status::Ok().message(), "");
}

TEST(StatusTest, FactoriesCarryCodeAndMessage) {
  const std::pair<Status, StatusCode> cases[] = {
      {Status::InvalidArgument("m"), StatusCode::kInvalidArgument},
      {Status::NotFound("m"), StatusCode::kNotFound},
      {Status::Corruption("m"), StatusCode::kCorruption},
      {Status::Unsupported("m"), StatusCode::kUnsupported},
      {Status::ResourceExhausted("m"), StatusCode::kResourceExhausted},
      {Status::Io("m"), StatusCode::kIo},
      {Status::Cancelled("m"), StatusCode::kCancelled},
      {Status::Internal("m"), StatusCode::kInternal},
  };
  for (const auto& [status, code] : cases) {
    EXPECT_FALSE(status.ok());
    EXPECT_EQ(status.code(), code);
    EXPECT_EQ(status.message(), "m");
  }
}

Result<int> Half(int value) {
  if (value % 2 != 0) return Status::InvalidArgument(std::to_string(value) + " is odd");
  return value / 2;
}

Result<int> Quarter(int value) {
  DEEPINFER_ASSIGN_OR_RETURN(const int half, Half(value));
  DEEPINFER_ASSIGN_OR_RETURN(const int quarter, Half(half));
  return quarter;
}

Status CheckQuarter(int value, int* calls) {
  DEEPINFER_RETURN_IF_ERROR(Quarter(value).status());
  ++*calls;
  return Status::Ok();
}

TEST(ResultTest, HoldsAValueOrTheReason) {
  EXPECT_TRUE(Half(4).ok());
  EXPECT_EQ(*Half(4), 2);
  EXPECT_TRUE(Half(4).status().ok());
  EXPECT_FALSE(Half(3).ok());
  EXPECT_EQ(Half(3).status().message(), "3 is odd");
}

TEST(ResultTest, MacrosReturnTheFirstError) {
  EXPECT_EQ(*Quarter(8), 2);
  EXPECT_EQ(Quarter(7).status().message(), "7 is odd");
  EXPECT_EQ(Quarter(6).status().message(), "3 is odd");
  int calls = 0;
  EXPECT_TRUE(CheckQuarter(8, &calls).ok());
  EXPECT_EQ(CheckQuarter(6, &calls).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(calls, 1);
}

TEST(ResultTest, MovesWhatCannotBeCopied) {
  Result<std::unique_ptr<int>> made = std::make_unique<int>(7);
  ASSERT_TRUE(made.ok());
  const std::unique_ptr<int> taken = std::move(made).value();
  EXPECT_EQ(*taken, 7);
  Result<std::string> text = std::string("abc");
  EXPECT_EQ(text->size(), 3u);
}

}  // namespace
}  // namespace deepinfer
