import { assertEquals } from "@std/assert";
import { formatDuration, tryParseDuration } from "./duration.ts";

const CASES: readonly [text: string, milliseconds: number, written: string][] = [
  ["0", 0, "0s"],
  ["0s", 0, "0s"],
  ["-0s", 0, "0s"],
  ["30s", 30_000, "30s"],
  ["1m30s", 90_000, "1m30s"],
  ["15m", 900_000, "15m0s"],
  ["24h", 86_400_000, "24h0m0s"],
  ["2h22m", 8_520_000, "2h22m0s"],
  ["1.5h", 5_400_000, "1h30m0s"],
  [".5s", 500, "500ms"],
  ["1.s", 1_000, "1s"],
  ["250ms", 250, "250ms"],
  ["1500ms", 1_500, "1.5s"],
  ["10us", 0.01, "10µs"],
  ["10µs", 0.01, "10µs"],
  ["10μs", 0.01, "10µs"],
  ["5ns", 0.000005, "5ns"],
  ["-1m", -60_000, "-1m0s"],
  ["+1s", 1_000, "1s"],
  ["1s1s", 2_000, "2s"],
];

Deno.test("tryParseDuration() parses the same texts as Go's time.ParseDuration", () => {
  for (const [text, milliseconds] of CASES) {
    assertEquals(tryParseDuration(text), milliseconds, text);
  }
});

Deno.test("formatDuration() writes the same text as Go's Duration.String", () => {
  for (const [, milliseconds, written] of CASES) {
    assertEquals(formatDuration(milliseconds), written);
  }
});

Deno.test("tryParseDuration() refuses everything else", () => {
  for (
    const text of [
      "",
      "-",
      "30",
      "1.5",
      "s",
      "1x",
      "1 s",
      "1m 30s",
      "--1s",
      "1e3s",
      ".s",
      "99999999h",
    ]
  ) {
    assertEquals(tryParseDuration(text), undefined, text);
  }
});

Deno.test("formatDuration() and tryParseDuration() are inverse for whole nanoseconds", () => {
  for (let exponent = 0; exponent < 50; exponent++) {
    const milliseconds = Math.floor(1.9 ** exponent) / 1e6;
    assertEquals(tryParseDuration(formatDuration(milliseconds)), milliseconds);
  }
});
