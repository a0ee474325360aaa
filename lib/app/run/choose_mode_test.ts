import { FakeCommandRunner } from "../../../tests/support/fakes/fake_command_runner.ts";
import {
  type FakeHost,
  fakeHostChecks,
  missingFeature,
} from "../../../tests/support/fakes/fake_host_checks.ts";
import { MemoryLogger } from "../../../tests/support/fakes/memory_logger.ts";
import type { ModeRequest } from "../../config/load.ts";
import { parseIpAddress } from "../../net/ip_address.ts";
import type { BackendMode } from "../../proxy/backend.ts";
import type { BackendTable } from "../dependencies.ts";
import { chooseFamilies, chooseMode, commonFamilies, ModeError } from "./choose_mode.ts";
import { assertEquals, assertRejects, assertStringIncludes, assertThrows } from "@std/assert";

const ALL: readonly BackendMode[] = ["iptables", "ipvs", "nftables", "userspace"];

/** A build that has these modes; none of them is ever made. */
function build(modes: readonly BackendMode[]): BackendTable {
  const create = () => {
    throw new Error("Unexpected backend");
  };
  return Object.fromEntries(modes.map((mode) => [mode, create]));
}

async function choose(
  request: ModeRequest,
  { host = {}, modes = ALL }: { host?: FakeHost; modes?: readonly BackendMode[] } = {},
) {
  const logger = new MemoryLogger();
  const asked: BackendMode[] = [];
  const hostChecks = fakeHostChecks(host, asked);
  const chosen = await chooseMode({ backends: build(modes), hostChecks, logger }, request);
  return { ...chosen, asked, lines: logger.lines };
}

const NO_NFT = { nftables: [missingFeature("nft")] };
const NO_FILTERS = { ...NO_NFT, iptables: [missingFeature("table nat")] };

Deno.test("chooseMode() uses the requested mode if the host has the required features", async () => {
  for (const mode of ALL) assertEquals((await choose(mode)).mode, mode);
});

Deno.test("chooseMode() chooses the best mode that works for auto", async () => {
  const cases: readonly [FakeHost, readonly BackendMode[], BackendMode][] = [
    [{}, ALL, "nftables"],
    [{ probes: NO_NFT }, ALL, "iptables"],
    [{ probes: NO_FILTERS }, ALL, "userspace"],
    [{}, ["userspace"], "userspace"],
    [{}, ["iptables", "userspace"], "iptables"],
  ];
  for (const [host, modes, expected] of cases) {
    assertEquals((await choose("auto", { host, modes })).mode, expected);
  }
});

Deno.test("chooseMode() logs one line for each mode that auto skips, with the reason", async () => {
  const { lines } = await choose("auto", { host: { probes: NO_FILTERS } });
  assertEquals(lines.map(({ level, message, fields }) => [level, message, fields]), [
    ["info", "Skipped a mode", { mode: "nftables", reason: "nft: no nft (get nft)" }],
    [
      "info",
      "Skipped a mode",
      { mode: "iptables", reason: "table nat: no table nat (get table nat)" },
    ],
    ["info", "Chose the best mode that works here", { mode: "userspace" }],
  ]);
});

Deno.test("chooseMode() uses iptables by default, without a message", async () => {
  const { mode, lines, asked } = await choose("default");
  assertEquals([mode, lines, asked], ["iptables", [], ["iptables"]]);
});

Deno.test("chooseMode() continues as auto with one warning when iptables cannot be had", async () => {
  const host = { probes: { iptables: [missingFeature("table nat")] } };
  const onHost = await choose("default", { host });
  assertEquals([onHost.mode, onHost.asked], ["nftables", ["iptables", "nftables"]]);
  const inBuild = await choose("default", { modes: ["userspace"] });
  assertEquals([inBuild.mode, inBuild.asked], ["userspace", ["userspace"]]);
  for (
    const [{ lines }, reason] of [
      [onHost, "table nat: no table nat (get table nat)"],
      [inBuild, "this release has userspace only"],
    ] as const
  ) {
    const warnings = lines.filter(({ level }) => level === "warn");
    assertEquals(warnings.map(({ fields }) => fields.reason), [reason]);
  }
});

Deno.test("chooseMode() refuses a mode that was asked for, naming all that is missing", async () => {
  const host = {
    probes: {
      nftables: [missingFeature("nft"), missingFeature("kernel", { cure: "a newer one" })],
    },
  };
  const error = await assertRejects(() => choose("nftables", { host }), ModeError);
  assertStringIncludes(
    error.message,
    "Cannot run in mode 'nftables': nft: no nft (get nft); kernel: no kernel (a newer one)",
  );
  const lacking = await assertRejects(() => choose("ipvs", { modes: ["userspace"] }), ModeError);
  assertStringIncludes(lacking.message, "mode 'ipvs': this release has userspace only");
});

Deno.test("chooseMode() fails when not even userspace is there", async () => {
  const modes = ["nftables"] as const;
  const error = await assertRejects(
    () => choose("auto", { host: { probes: NO_NFT }, modes }),
    ModeError,
  );
  assertStringIncludes(error.message, "nftables: nft: no nft (get nft); iptables: this release");
});

Deno.test("chooseMode() accepts a mode without IPv6, and reports it", async () => {
  const probes = { iptables: [missingFeature("table nat", { family: "IPv6" })] };
  const { mode, families, lines } = await choose("default", { host: { probes } });
  assertEquals([mode, families], ["iptables", ["IPv4"]]);
  assertEquals(lines.map(({ level, fields }) => [level, fields.ipFamily, fields.reason]), [
    ["warn", "IPv6", "table nat (IPv6): no table nat (get table nat)"],
  ]);
});

Deno.test("chooseMode() names the missing features of the mode, each once", async () => {
  const missing = { required: false } as const;
  const probes = {
    iptables: [
      missingFeature("match recent", { ...missing, family: "IPv4" }),
      missingFeature("match recent", { ...missing, family: "IPv6" }),
      missingFeature("conntrack", missing),
    ],
  };
  const { lines } = await choose("iptables", { host: { probes } });
  assertEquals(lines.map(({ level, fields }) => [level, fields.features]), [
    ["info", "match recent, conntrack"],
  ]);
});

Deno.test("commonFamilies() returns the families of both host and mode, and refuses none", () => {
  const of = (...families: ("IPv4" | "IPv6")[]) => ({ mode: "iptables", families }) as const;
  assertEquals(commonFamilies(of("IPv4", "IPv6"), ["IPv4"]), ["IPv4"]);
  assertEquals(commonFamilies(of("IPv6"), ["IPv4", "IPv6"]), ["IPv6"]);
  assertThrows(() => commonFamilies(of("IPv6"), ["IPv4"]), ModeError, "for IPv6 only");
});

Deno.test("chooseMode() uses a mode that is set although its tool did not answer in time", async () => {
  const late = missingFeature("table", { detail: "nft did not answer within 15 s", isLate: true });
  for (const [request, mode] of [["nftables", "nftables"], ["default", "iptables"]] as const) {
    const host = { probes: { [mode]: [late, { ...late, family: "IPv6" as const }] } };
    const { mode: chosen, families, lines } = await choose(request, { host });
    assertEquals([chosen, families], [mode, ["IPv4", "IPv6"]]);
    assertEquals(lines.map(({ level }) => level), ["warn"]);
    const half = { probes: { [mode]: [{ ...late, family: "IPv6" as const }] } };
    assertEquals((await choose(request, { host: half })).families, ["IPv4", "IPv6"]);
    assertEquals((await choose("auto", { host: half })).families, ["IPv4", "IPv6"]);
    // What is missing for another reason still counts.
    const broken = { probes: { [mode]: [late, missingFeature("program")] } };
    if (request === "nftables") await assertRejects(() => choose(request, { host: broken }));
  }
});

const SETTING = "net.ipv6.conf.all.disable_ipv6";
const answers = {
  on: () => new FakeCommandRunner().on("sysctl", { stdout: `${SETTING} = 0\n` }),
  off: () => new FakeCommandRunner().on("sysctl", { stdout: `${SETTING} = 1\n` }),
  "without the tool sysctl": () => new FakeCommandRunner().failNext("not-found"),
};

for (
  const [name, addresses, sysctl, families] of [
    ["takes both where the kernel has both", ["127.0.0.1", "::1"], "on", "IPv4 IPv6"],
    ["leaves out IPv6 where it is disabled", ["127.0.0.1", "fe80::1"], "off", "IPv4"],
    ["leaves out IPv6 where no interface has an address of it", ["127.0.0.1"], "on", "IPv4"],
    [
      "uses the addresses if sysctl is missing",
      ["127.0.0.1", "::1"],
      "without the tool sysctl",
      "IPv4 IPv6",
    ],
  ] as const
) {
  Deno.test(`chooseFamilies() ${name}`, async () => {
    const logger = new MemoryLogger();
    const chosen = await chooseFamilies({
      network: {
        interfaceAddresses: () =>
          addresses.map((text) => ({ interfaceName: "lo", address: parseIpAddress(text) })),
      },
      commands: answers[sysctl](),
      logger,
    });
    assertEquals(chosen.join(" "), families);
    const lines = logger.lines.map(({ level, message }) => `${level}: ${message}`);
    assertEquals(lines, chosen.length === 2 ? [] : ["info: Skipping an IP family"]);
  });
}
