import { assert, assertEquals } from "@std/assert";
import { findFlag } from "./flags.ts";
import { parseFlagValue } from "./parse_flag_value.ts";

function parse(name: string, text: string): unknown {
  const result = parseFlagValue(findFlag(name)!, text);
  return "value" in result ? result.value : undefined;
}

Deno.test("parseFlagValue() reads numbers, pairs and patterns by the type of the row", () => {
  assertEquals(parse("kube-api-qps", "-1.5"), -1.5);
  assertEquals(parse("kube-api-qps", "1e2"), 100);
  assertEquals(parse("feature-gates", "A=true, B=F,"), { A: true, B: false });
  assertEquals(parse("vmodule", "a*=1,b=2"), [
    { filePattern: "a*", verbosity: 1 },
    { filePattern: "b", verbosity: 2 },
  ]);
  assertEquals(parse("version", "v1.36.0-k3s1"), "v1.36.0-k3s1");
  assertEquals(parse("detect-local-mode", ""), "");
});

Deno.test("parseFlagValue() refuses similar but invalid texts", () => {
  for (
    const [name, text] of [
      ["kube-api-qps", ""],
      ["kube-api-qps", "NaN"],
      ["feature-gates", "A=maybe"],
      ["feature-gates", "=true"],
      ["vmodule", "a=-1"],
      ["vmodule", "a=2147483648"],
      ["version", "1.36"],
    ] as const
  ) assert(parse(name, text) === undefined, `${name} ${text}`);
});
