import { assertEquals } from "@std/assert";
import { ApiError, apiErrorFromStatus } from "./api_error.ts";

Deno.test("apiErrorFromStatus() names action, code, reason and the server's words", () => {
  const message = "too old resource version: 1 (200)";
  const raw = { kind: "Status", message, reason: "Expired", code: 410 };
  const error = apiErrorFromStatus(raw, { action: "watch /api/v1/services" });
  assertEquals(error.message, `Cannot watch /api/v1/services: 410 Expired: ${message}`);
  assertEquals([error.status, error.reason, error.isGone()], [410, "Expired", true]);
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

Deno.test("ApiError.isResourceVersionTooLarge() knows the text of servers that send no cause", () => {
  const text = "Timeout: Too large resource version: 900, current: 5";
  assertEquals(new ApiError(text, { status: 504 }).isResourceVersionTooLarge(), true);
});

Deno.test("apiErrorFromStatus() keeps the beginning of a long text", () => {
  const raw = { message: "m".repeat(1_000_000), reason: "r".repeat(1_000_000) };
  const error = apiErrorFromStatus(raw, { action: "watch on" });
  assertEquals([error.message.length < 2100, error.reason?.length], [true, 1000]);
});
