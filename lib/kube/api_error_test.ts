import { assertEquals } from "@std/assert";
import { ApiError, apiErrorFromStatus } from "./api_error.ts";

const EXPIRED = {
  kind: "Status",
  status: "Failure",
  message: "too old resource version: 1 (200)",
  reason: "Expired",
  code: 410,
};

Deno.test("apiErrorFromStatus() names action, code, reason and the server's words", () => {
  const error = apiErrorFromStatus(EXPIRED, { action: "watch /api/v1/services" });
  assertEquals(
    error.message,
    "Cannot watch /api/v1/services: 410 Expired: too old resource version: 1 (200)",
  );
  assertEquals([error.status, error.reason], [410, "Expired"]);
});

Deno.test("apiErrorFromStatus() handles the answer of a proxy in between", () => {
  for (
    const [raw, message] of [
      ["<html>Bad Gateway</html>", "Cannot read /x: 502: <html>Bad Gateway</html>"],
      ["", "Cannot read /x: 502: no reason given"],
      [null, "Cannot read /x: 502: no reason given"],
      [
        { code: "x", reason: 5, message: {}, details: "no" },
        "Cannot read /x: 502: no reason given",
      ],
      [{ details: { causes: "no" } }, "Cannot read /x: 502: no reason given"],
    ] as const
  ) {
    const error = apiErrorFromStatus(raw, { action: "read /x", httpStatus: 502 });
    assertEquals(error.message, message);
  }
});

Deno.test("apiErrorFromStatus() reads the wait from the header, or from the Status", () => {
  const status = { code: 429, details: { retryAfterSeconds: 3 } };
  const wait = (retryAfterMs?: number) =>
    apiErrorFromStatus(status, { action: "read /x", retryAfterMs }).retryAfterMs;
  assertEquals([wait(), wait(7000)], [3000, 7000]);
});

const PREDICATES = [
  ["isBadRequest", { status: 400 }, { status: 422 }],
  ["isUnauthorized", { status: 401 }, { status: 403 }],
  ["isForbidden", { status: 403 }, { status: 401 }],
  ["isNotFound", { status: 404 }, { status: 410 }],
  ["isGone", { status: 410 }, { status: 404 }],
  ["isGone", { status: 500, reason: "Expired" }, { status: 500, reason: "InternalError" }],
  ["isTooManyRequests", { status: 429 }, { status: 503 }],
  ["isServerError", { status: 503 }, { status: 429 }],
  [
    "isResourceVersionTooLarge",
    { status: 504, causes: ["ResourceVersionTooLarge"] },
    { status: 504 },
  ],
] as const;

for (const [predicate, yes, no] of PREDICATES) {
  Deno.test(`ApiError.${predicate}() is true for ${JSON.stringify(yes)} only`, () => {
    assertEquals(new ApiError("x", yes)[predicate](), true);
    assertEquals(new ApiError("x", no)[predicate](), false);
  });
}

Deno.test("ApiError.isResourceVersionTooLarge() knows the text of servers that send no cause", () => {
  const text = "Timeout: Too large resource version: 900, current: 5";
  assertEquals(new ApiError(text, { status: 504 }).isResourceVersionTooLarge(), true);
});

Deno.test("apiErrorFromStatus() keeps the beginning of a long text", () => {
  const raw = { message: "m".repeat(1_000_000), reason: "r".repeat(1_000_000) };
  const error = apiErrorFromStatus(raw, { action: "watch on" });
  assertEquals([error.message.length < 2100, error.reason?.length], [true, 1000]);
});
