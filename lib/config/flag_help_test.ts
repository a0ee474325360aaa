import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { flagDefault, flagHelp, flagUsage, HELP_WIDTH } from "./flag_help.ts";
import { findFlag, FLAG_ROWS } from "./flags.ts";

Deno.test("flagHelp() names every flag once but retired ones, in lines of at most 80 columns", () => {
  const lines = flagHelp().split("\n");
  for (const line of lines) assert(line.length <= HELP_WIDTH, line);
  for (const flag of FLAG_ROWS) {
    const expected = flag.retired ? 0 : 1;
    assertEquals(
      lines.filter((line) => line === `  ${flagUsage(flag)}`).length,
      expected,
      flag.name,
    );
  }
});

Deno.test("flagHelp() has groups and shows defaults", () => {
  assertStringIncludes(flagHelp(), "\n\nProxying:\n  --proxy-mode MODE, --mode MODE\n");
  assertStringIncludes(flagHelp(), "SIGTERM (default 10s)\n");
});

Deno.test("flagUsage() shows values only if one is required", () => {
  assertEquals(flagUsage(findFlag("v")!), "-v N");
  assertEquals(flagUsage(findFlag("version")!), "--version");
  assertEquals(flagUsage(findFlag("json")!), "--json");
  assertEquals(flagUsage(findFlag("udp-timeout")!), "--udp-timeout DURATION");
});

Deno.test("flagDefault() writes defaults as they would be typed", () => {
  assertEquals(flagDefault(findFlag("iptables-sync-period")!), "30s");
  assertEquals(flagDefault(findFlag("healthz-bind-address")!), "0.0.0.0:10256");
  assertEquals(flagDefault(findFlag("udp-timeout")!), "1m");
  assertEquals(flagDefault(findFlag("kubeconfig")!), "");
});
