import { assertEquals } from "@std/assert";
import { isAtLeast, parseVersion, versionText } from "./tool_version.ts";

Deno.test("parseVersion() finds the version in the output of tools and kernels", () => {
  const cases: readonly [text: string, version: readonly number[] | undefined][] = [
    ["nftables v1.0.6 (Lester Gooch #5)", [1, 0, 6]],
    ["ipset v7.17, protocol version: 7", [7, 17]],
    ["6.18.44-fc-v595", [6, 18, 44]],
    ["5.10.0-28-cloud-amd64", [5, 10, 0]],
    ["4.4.0", [4, 4, 0]],
    ["command not found", undefined],
    ["", undefined],
    ["version 7", undefined],
  ];
  for (const [text, version] of cases) assertEquals(parseVersion(text), version, text);
});

Deno.test("isAtLeast() compares numbers, not text, and treats missing parts as 0", () => {
  const cases: readonly [version: number[], least: number[], expected: boolean][] = [
    [[1, 0, 1], [1, 0, 1], true],
    [[1, 0], [1, 0, 1], false],
    [[1, 10], [1, 9, 9], true],
    [[5, 13], [5, 13], true],
    [[5, 4, 200], [5, 13], false],
    [[6], [5, 13], true],
  ];
  for (const [version, least, expected] of cases) {
    assertEquals(isAtLeast(version, least), expected, `${versionText(version)} >= ${least}`);
  }
});
