#include "cache/redis_url.h"

#include <gtest/gtest.h>

namespace deepinfer {
namespace {

RedisUrl Parse(const std::string& text) {
  Result<RedisUrl> url = RedisUrl::Parse(text);
  EXPECT_TRUE(url.ok()) << text << ": " << url.status().message();
  return url.ok() ? *url : RedisUrl{};
}

TEST(RedisUrl, HostPortAndDatabase) {
  EXPECT_EQ(Parse("redis://cache").host, "cache");
  EXPECT_EQ(Parse("redis://cache").port, 6379);
  EXPECT_EQ(Parse("redis://cache/").database, 0);
  const RedisUrl encoded = Parse("redis://:p%40ss:w%2Ford@10.0.0.1:7000/3");
  EXPECT_EQ(encoded.password, "p@ss:w/ord");
  EXPECT_EQ(encoded.user, "");
  EXPECT_EQ(encoded.host, "10.0.0.1");
  EXPECT_EQ(encoded.port, 7000);
  EXPECT_EQ(encoded.database, 3);
  EXPECT_EQ(encoded.address(), "redis://10.0.0.1:7000/3");
  EXPECT_EQ(Parse("redis://reader:a@b@cache").user, "reader");
  EXPECT_EQ(Parse("redis://reader:a@b@cache").password, "a@b");
  EXPECT_EQ(Parse("redis://[::1]:7000").host, "::1");
  EXPECT_EQ(Parse("redis://[::1]:7000").port, 7000);
  EXPECT_EQ(Parse("redis://[::1]").address(), "redis://[::1]:6379");
}

TEST(RedisUrl, Sockets) {
  EXPECT_EQ(Parse("redis+unix:///run/redis.sock").path, "/run/redis.sock");
  EXPECT_EQ(Parse("redis+unix:///run/redis.sock").host, "");
  const RedisUrl all = Parse("redis+unix://me:secret@/run/a@b?db=2");
  EXPECT_EQ(all.user, "me");
  EXPECT_EQ(all.password, "secret");
  EXPECT_EQ(all.path, "/run/a@b");
  EXPECT_EQ(all.database, 2);
  EXPECT_EQ(all.address(), "redis+unix:///run/a@b?db=2");
}

TEST(RedisUrl, WhatCannotBeIsToldWithoutSecrets) {
  for (const std::string text : {"",
                                 "cache:6379",
                                 "http://:hunter2@cache",
                                 "redis://",
                                 "redis://:hunter2@",
                                 "redis://hunter2@cache",
                                 "redis://:@cache",
                                 "redis://:hunter2%4@cache",
                                 "redis://:hunter2%zz@cache",
                                 "redis://:hunter2@cache:port",
                                 "redis://:hunter2@cache:0",
                                 "redis://:hunter2@cache:65536",
                                 "redis://:hunter2@cache:",
                                 "redis://:hunter2@cache/x",
                                 "redis://:hunter2/@cache",
                                 "redis://:hunter2@cache/-1",
                                 "redis://:hunter2@[::1",
                                 "redis://:hunter2@[::1]7",
                                 "redis+unix://:hunter2@run",
                                 "redis+unix://:hunter2@/run?db=x",
                                 "redis+unix://:hunter2@/run?password=hunter2"}) {
    const Status status = RedisUrl::Parse(text).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << text;
    EXPECT_EQ(status.message().find("hunter2"), std::string::npos) << status.message();
    EXPECT_NE(status.message().find("expected redis://"), std::string::npos) << status.message();
  }
  EXPECT_FALSE(RedisUrl::Parse("redis+unix:///" + std::string(107, 'x')).ok());
  EXPECT_TRUE(RedisUrl::Parse("redis+unix:///" + std::string(106, 'x')).ok());
  EXPECT_EQ(RedisUrl::Parse("rediss://cache").status().code(), StatusCode::kUnsupported);
}

}  // namespace
}  // namespace deepinfer
