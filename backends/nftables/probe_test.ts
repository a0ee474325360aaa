import { assert, assertEquals } from "@std/assert";
import { FakeCommandRunner } from "../../tests/support/fakes/fake_command_runner.ts";
import { missingText, supportOf } from "../../lib/proxy/service_mode.ts";
import { probeNftablesMode } from "./probe.ts";

interface Host {
  readonly kernelRelease?: string;
  readonly version?: string;
  readonly env?: Readonly<Record<string, string>>;
  /** The answer to the check of a text. */
  readonly check?: (text: string) => { code?: number; stderr?: string };
}

function hostWith({ version = "nftables v1.0.6 (x)", check = () => ({}) }: Host = {}) {
  return new FakeCommandRunner()
    .on("nft --version", { stdout: version })
    .on("nft --check -f -", ({ stdin }) => check(stdin))
    .on("conntrack -C", { stdout: "12\n" })
    .on("sysctl -n", { stdout: "1\n" });
}

function probe(host: Host = {}, commands = hostWith(host)) {
  const { kernelRelease = "6.1.0-13-amd64", env = {} } = host;
  return probeNftablesMode({ commands, kernelRelease, env: (name) => env[name] });
}

Deno.test("probeNftablesMode() tries each family by one text that is never committed", async () => {
  const commands = hostWith();
  const results = await probe({}, commands);
  assertEquals(results.filter(({ available }) => !available), []);
  assertEquals(supportOf(results).families, ["IPv4", "IPv6"]);
  const texts = commands.calls.filter(({ line }) => line.startsWith("nft --check"));
  assertEquals(texts.map(({ stdin }) => stdin.split("\n")[0]), [
    "add table ip kube-relay-probe",
    "add table ip6 kube-relay-probe",
  ]);
  for (const { stdin } of texts) {
    assert(!/[{](table|type|address|endpoint|ip)[}]/.test(stdin), stdin);
  }
});

Deno.test("probeNftablesMode() keeps kube-proxy's bounds for nft and the kernel", async () => {
  const cases: readonly [Host, missing: string][] = [
    [{ version: "nftables v1.0.1 (x)" }, ""],
    [{ version: "nftables v1.0.0 (x)" }, "nft: version 1.0.0 is older than 1.0.1"],
    [{ version: "Segmentation fault" }, "nft: nft --version printed no version, but: Segmentation"],
    [{ kernelRelease: "5.13.0" }, ""],
    [{ kernelRelease: "5.4.0-150-generic" }, "kernel: 5.4.0-150-generic is older than 5.13"],
    [{ kernelRelease: "custom" }, "kernel: 'custom' contains no version"],
    [
      {
        kernelRelease: "5.4.0",
        env: { KUBE_PROXY_NFTABLES_SKIP_KERNEL_VERSION_CHECK: "1" },
      },
      "",
    ],
  ];
  for (const [host, expected] of cases) {
    const text = missingText(supportOf(await probe(host)).missing);
    assert(expected === "" ? text === "" : text.startsWith(expected), `${text} for ${expected}`);
  }
});

Deno.test("probeNftablesMode() names the feature of a line that nft refuses, with its remedy", async () => {
  const check = (text: string) => {
    const line = text.split("\n").findIndex((each) => each.includes("fib daddr")) + 1;
    if (line === 0) return {};
    const stderr =
      `/dev/stdin:${line}:1-20: Error: Could not process rule: No such file or directory`;
    return { code: 1, stderr };
  };
  const results = await probe({ check });
  const missing = results.filter(({ available }) => !available);
  assertEquals(missing.map(({ feature, family }) => [feature, family]), [
    ["fib", "IPv4"],
    ["fib", "IPv6"],
  ]);
  assertEquals(missing[0]!.detail, "Could not process rule: No such file or directory");
  assert(missing[0]!.cure?.includes("CONFIG_NFT_FIB_IPV4"), missing[0]!.cure);
});

Deno.test("probeNftablesMode() works on one family if the kernel lacks the other", async () => {
  const check = (text: string) =>
    text.startsWith("add table ip6")
      ? {
        code: 1,
        stderr: "/dev/stdin:1:1-9: Error: Could not process rule: Operation not supported",
      }
      : {};
  const results = await probe({ check });
  assertEquals(supportOf(results).families, ["IPv4"]);
  assertEquals(supportOf(results).missing.map(({ feature }) => feature), ["table of nftables"]);
});

for (const failure of ["timeout", "killed"] as const) {
  Deno.test(`probeNftablesMode() gives up on a check that ends as '${failure}', and continues`, async () => {
    const commands = hostWith();
    // The three before ask for the version and the shared tools.
    commands.failCall(4, failure);
    const { families, missing } = supportOf(await probe({}, commands));
    assertEquals([families, missing.map(({ isLate }) => isLate)], [["IPv6"], [true]]);
  });
}

Deno.test("probeNftablesMode() reports a crash of nft, and nothing that would follow from it", async () => {
  const { families, missing } = supportOf(await probe({}, hostWith().failCall(4, "crashed")));
  assertEquals([families, missing.map(({ feature, isLate }) => [feature, isLate])], [
    [],
    [["nft", undefined]],
  ]);
});
