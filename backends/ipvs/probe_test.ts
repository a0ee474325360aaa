import { assertEquals } from "@std/assert";
import { FakeCommandRunner } from "../../tests/support/fakes/fake_command_runner.ts";
import { supportOf } from "../../lib/proxy/service_mode.ts";
import { probeIpvsMode } from "./probe.ts";

const BUSY = "line 9: CHAIN_DEL failed (Device or resource busy): chain X";

/** A host that has everything. */
function wholeHost(): FakeCommandRunner {
  const commands = new FakeCommandRunner()
    .on("cat /proc/net/ip_vs", { stdout: "IP Virtual Server version 1.2.1 (size=4096)\n" })
    .on("cat /proc/net/ip_tables_names", {})
    .on("cat /proc/net/ip6_tables_names", {})
    .on("ipvsadm --version", { stdout: "ipvsadm v1.31 2019/12/24 (compiled with popt)\n" })
    .on("ipvsadm -R", {})
    .on("ipset --version", { stdout: "ipset v7.17, protocol version: 7\n" })
    .on("ipset", {})
    .on("ipset --version", { stdout: "ipset v7.17, protocol version: 7\n" })
    .on("ip -batch -", {})
    .on("conntrack -C", { stdout: "0\n" })
    .on("sysctl -n", { stdout: "1\n" });
  for (const name of ["iptables", "ip6tables"]) {
    for (const variant of ["-nft", "-legacy"]) {
      commands.on(`${name}${variant}-restore`, { code: 127 });
    }
    commands.on(`${name}-restore`, { code: 4, stderr: BUSY });
    commands.on(`${name}-restore --version`, { stdout: `${name} v1.8.9 (nf_tables)\n` });
  }
  return commands;
}

function missingOf(commands: FakeCommandRunner, options = {}): Promise<readonly string[]> {
  return probeIpvsMode({ commands }, options).then((results) =>
    results.filter(({ available }) => !available).map(({ feature, detail }) =>
      `${feature}: ${detail}`
    )
  );
}

Deno.test("probeIpvsMode() finds nothing missing if everything is there", async () => {
  assertEquals(await missingOf(wholeHost()), []);
});

Deno.test("probeIpvsMode() adds and removes a server to try the scheduler", async () => {
  const commands = wholeHost();
  await probeIpvsMode({ commands }, { scheduler: "mh" });
  const [call] = commands.calls.filter(({ line }) => line === "ipvsadm -R");
  assertEquals(call?.stdin, "-A -t 198.51.100.0:20000 -s mh\n-D -t 198.51.100.0:20000\n");
});

Deno.test("probeIpvsMode() assumes that a scheduler in use exists", async () => {
  const commands = wholeHost().on("cat /proc/net/ip_vs", {
    stdout: "Prot LocalAddress:Port Scheduler Flags\nTCP  0A600001:0050 rr persistent 10800\n",
  });
  assertEquals(await missingOf(commands), []);
  assertEquals(commands.calls.filter(({ line }) => line === "ipvsadm -R").length, 0);
});

Deno.test("probeIpvsMode() reports missing features and missing rights of ipvsadm", async () => {
  const cases: readonly [stderr: string, missing: readonly string[]][] = [
    [
      "Can't initialize ipvs: Protocol not available\nAre you sure …",
      ["ip_vs in the kernel: the kernel has no IPVS (ipvsadm: Protocol not available)"],
    ],
    [
      "Scheduler or persistence engine not found\nNo such service\n",
      ["scheduler rr: the kernel has no scheduler 'rr'"],
    ],
    [
      "Can't initialize ipvs: Permission denied (you must be root)\n",
      ["right to change packet filters: not permitted (needs root / CAP_NET_ADMIN)"],
    ],
    ["\x1b rubbish", ["scheduler rr: \ufffd rubbish"]],
  ];
  for (const [stderr, missing] of cases) {
    assertEquals(await missingOf(wholeHost().on("ipvsadm -R", { stderr })), missing, stderr);
  }
});

Deno.test("probeIpvsMode() removes the leftovers of a killed probe", async () => {
  let servers = 1;
  const server = wholeHost().on("ipvsadm -R", () => {
    servers -= 1;
    return servers === 0 ? { stderr: "Service already exists\n" } : {};
  });
  assertEquals(await missingOf(server), []);
  let devices = 1;
  const device = wholeHost().on("ip -batch -", ({ stdin }) => {
    if (stdin.startsWith("link del")) devices = 0;
    return devices > 0 ? { code: 1, stderr: "RTNETLINK answers: File exists\n" } : {};
  });
  assertEquals(await missingOf(device), []);
});

Deno.test("probeIpvsMode() removes server, device and sets after programs that were killed", async () => {
  for (
    const [prefix, removal] of [
      ["ipvsadm -R", "-D -t 198.51.100.0:20000\n"],
      ["ip -batch -", "link del kr-probe0\n"],
    ] as const
  ) {
    const planned = wholeHost();
    await probeIpvsMode({ commands: planned });
    const index = planned.calls.findIndex(({ line }) => line === prefix);
    const commands = wholeHost().failCall(index + 1, "timeout", { carriedOut: true });
    const { families } = supportOf(await probeIpvsMode({ commands }));
    const last = commands.calls.filter(({ line }) => line === prefix).at(-1);
    assertEquals([families, last?.stdin], [[], removal]);
  }
});

Deno.test("probeIpvsMode() names the type of set that the kernel lacks", async () => {
  const commands = wholeHost().on("ipset restore", ({ stdin }) => {
    const line = stdin.split("\n").findIndex((each) => /^create \S+ bitmap:port/.test(each)) + 1;
    if (line === 0) return {};
    return { code: 1, stderr: `ipset v7.17: Error in line ${line}: set type not supported\n` };
  });
  assertEquals(await missingOf(commands), ["set bitmap:port: set type not supported"]);
});

Deno.test("probeIpvsMode() wants ipset 6.0", async () => {
  const old = wholeHost().on("ipset --version", { stdout: "ipset v5.4, protocol version: 5\n" });
  assertEquals(await missingOf(old), [
    "ipset: version 5.4 is older than 6.0",
  ]);
});
