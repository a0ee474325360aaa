import { assertEquals } from "@std/assert";
import type { CheckTarget } from "./health_settings.ts";
import { HealthCheck } from "./health_check.ts";
import type { ProbeResult } from "./probe_endpoint.ts";

const RESULTS: Readonly<Record<string, ProbeResult>> = {
  "+": { kind: "passed" },
  "-": { kind: "failed", reason: "refused" },
  "t": { kind: "timeout", reason: "late" },
  "?": { kind: "unknown" },
};

/** The first letter of the verdict after each result. */
function verdicts(results: string, { rise = 2, fall = 3 } = {}): string {
  const check = new HealthCheck<never>("", { rise, fall } as CheckTarget);
  return [...results].map((letter) => {
    check.take(RESULTS[letter]!);
    return check.verdict === "unhealthy" ? "U" : check.verdict === "healthy" ? "H" : "?";
  }).join("");
}

Deno.test("HealthCheck.take() follows rise and fall; the first result decides at once", () => {
  for (
    const [results, expected] of [
      ["+++", "HHH"],
      ["-++-", "UUHH"],
      ["+---++", "HHHUUH"],
      ["+--+--+t-t", "HHHHHHHHHU"],
      ["-+-+-++", "UUUUUUH"],
      ["??-?+?+", "??UUUUH"],
      ["+--?-", "HHHHU"],
    ] as const
  ) assertEquals(verdicts(results), expected, results);
  assertEquals(verdicts("+-+-", { rise: 1, fall: 1 }), "HUHU");
});

Deno.test("HealthCheck has the latest reason while it is unhealthy", () => {
  const check = new HealthCheck<never>("", { rise: 1, fall: 1 } as CheckTarget);
  check.take(RESULTS["-"]!);
  assertEquals(check.reason, "refused");
  check.take(RESULTS["t"]!);
  assertEquals(check.reason, "late");
  check.take(RESULTS["+"]!);
  assertEquals(check.reason, undefined);
  check.refuse("it is closed");
  assertEquals([check.verdict, check.reason], ["unchecked", "not checked: it is closed"]);
  check.take(RESULTS["+"]!);
  assertEquals([check.verdict, check.reason], ["healthy", undefined]);
});
