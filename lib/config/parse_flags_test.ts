import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { findFlag, type FlagValues } from "./flags.ts";
import { givenFlags, parseFlags, parseFlagValue } from "./parse_flags.ts";

const ACCEPTED: readonly [argv: string[], values: FlagValues, positionals?: string[]][] = [
  [[], {}],
  [["--kubeconfig=/etc/k"], { kubeconfig: "/etc/k" }],
  [["--kubeconfig", "/etc/k"], { kubeconfig: "/etc/k" }],
  [["--kubeconfig", "--master"], { kubeconfig: "--master" }],
  [["--kubeconfig="], { kubeconfig: "" }],
  [["--config=", "--master", "", "--write-config-to="], {}],
  [["--config=a", "--config="], {}],
  [["--config=", "--config=a"], { config: "a" }],
  [["--kubeconfig=a=b"], { kubeconfig: "a=b" }],
  [["--proxy_mode=userspace"], { "proxy-mode": "userspace" }],
  [["--mode", "userspace"], { "proxy-mode": "userspace" }],
  [["--hostname-override=a", "--hostname-override=b"], { "hostname-override": "b" }],
  [["--bind-address-hard-fail"], { "bind-address-hard-fail": true }],
  [["--bind-address-hard-fail=false"], { "bind-address-hard-fail": false }],
  [["--bind-address-hard-fail=T"], { "bind-address-hard-fail": true }],
  [["--bind-address-hard-fail", "status"], { "bind-address-hard-fail": true }, ["status"]],
  [["-v=4"], { v: 4 }],
  [["-v4"], { v: 4 }],
  [["-v", "4"], { v: 4 }],
  [["--v=4"], { v: 4 }],
  [["--udp-timeout=1m30s"], { "udp-timeout": 90_000 }],
  [["--manifests=a,b", "--manifests", "c"], { manifests: ["a", "b", "c"] }],
  [["--nodeport-addresses=10.0.0.0/8, fd00::/8"], {
    "nodeport-addresses": ["10.0.0.0/8", "fd00::/8"],
  }],
  [["--version"], { version: "true" }],
  [["--version=raw"], { version: "raw" }],
  [["--version", "raw"], { version: "true" }, ["raw"]],
  [["-h"], { help: true }],
  [["status", "--json"], { json: true }, ["status"]],
  [["--json", "--", "--help", "7"], { json: true }, ["--help", "7"]],
  [["", "status"], {}, ["status"]],
];

Deno.test("parseFlags() reads a command line as kube-proxy does", async (t) => {
  for (const [argv, values, positionals = []] of ACCEPTED) {
    await t.step(argv.join(" ") || "(nothing)", () => {
      assertEquals(parseFlags(argv), { values, positionals, problems: [] });
    });
  }
});

const REFUSED: readonly [argv: string[], problem: string][] = [
  [["--proxy-mod=userspace"], "Unknown flag --proxy-mod; did you mean '--proxy-mode'?"],
  [
    ["--node_port_addresses=x"],
    "Unknown flag --node_port_addresses; did you mean '--nodeport-addresses'?",
  ],
  // As many letters differ as may, `_` and `-` not counted.
  [["--oom_scores_adjust=1"], "Unknown flag --oom_scores_adjust; did you mean '--oom-score-adj'?"],
  [["--no-such-thing"], "Unknown flag --no-such-thing"],
  [["-kubeconfig=x"], "Unknown flag -kubeconfig=x"],
  [["-x"], "Unknown flag -x"],
  [["--no-json"], "Unknown flag --no-json"],
  [["--kubeconfig"], "Flag --kubeconfig needs a value"],
  [["-v"], "Flag -v needs a value"],
  [["--udp-timeout"], "Flag --udp-timeout needs a value, such as 30s"],
  [["--address-mode"], "Flag --address-mode needs a value: one of auto, each, anyip, none"],
  [["--udp-timeout=30"], "Cannot use '30' for --udp-timeout: expected a duration with its unit"],
  [["--udp-timeout=0"], "Cannot use '0' for --udp-timeout: expected a duration above 0"],
  [["--drain-timeout=-1s"], "Cannot use '-1s' for --drain-timeout: expected 0s or more"],
  [["-v=x"], "Cannot use 'x' for -v: expected a whole number from 0 to 2147483647"],
  [["--max-connections-per-service=0"], "Cannot use '0' for --max-connections-per-service"],
  [["--json=yes"], "Cannot use 'yes' for --json: expected true or false"],
  [["--userspace-workers=99"], "expected auto, or a whole number from 1 to 32"],
  [["--address-mode=anyp"], "expected one of auto, each, anyip, none; did you mean 'anyip'?"],
];

Deno.test("parseFlags() names the fault and the remedy", async (t) => {
  for (const [argv, expected] of REFUSED) {
    await t.step(argv.join(" "), () => {
      const { problems } = parseFlags(argv);
      assertEquals(problems.length, 1);
      assertStringIncludes(problems[0]!, expected);
    });
  }
});

Deno.test("parseFlags() collects all problems, and parses the rest nevertheless", () => {
  const { problems, values } = parseFlags(["--nope", "--json=7", "--kubeconfig=/etc/k"]);
  assertEquals(problems.length, 2);
  assertEquals(values, { kubeconfig: "/etc/k" });
});

Deno.test("givenFlags() names only the given flags", () => {
  assertEquals(givenFlags(parseFlags(["-v2", "--mode=x"]).values), ["proxy-mode", "v"]);
  assert(givenFlags({}).length === 0);
});

function parseOne(name: string, text: string): unknown {
  const result = parseFlagValue(findFlag(name)!, text);
  return "value" in result ? result.value : undefined;
}

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
  ) assert(parseOne(name, text) === undefined, `${name} ${text}`);
});
