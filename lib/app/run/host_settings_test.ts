import { FakeCommandRunner } from "../../../tests/support/fakes/fake_command_runner.ts";
import { settle } from "../../../tests/support/fakes/fake_clock.ts";
import { MemoryLogger } from "../../../tests/support/fakes/memory_logger.ts";
import { defaultConfiguration, type KubeProxyConfiguration } from "../../config/configuration.ts";
import type { HostSettingRequest } from "../../proxy/data_plane.ts";
import { HostSettings } from "./host_settings.ts";
import { assertEquals, assertStringIncludes } from "@std/assert";

const MAX = "net.netfilter.nf_conntrack_max";
const BUCKETS = "net.netfilter.nf_conntrack_buckets";
const LOCALNET = "net.ipv4.conf.all.route_localnet";

/** A kernel of which `sysctl` shows and changes the settings. */
class FakeKernel {
  readonly settings = new Map<string, string>();
  readonly readOnly = new Set<string>();
  readonly written: string[] = [];
  readonly commands = new FakeCommandRunner()
    .on("sysctl ", ({ args }) => {
      const known = args.filter((name) => this.settings.has(name));
      const stdout = known.map((name) => `${name} = ${this.settings.get(name)}\n`).join("");
      const missing = args.filter((name) => !this.settings.has(name));
      const stderr = missing.map((name) =>
        `sysctl: cannot stat /proc/sys/${name.replaceAll(".", "/")}: No such file or directory\n`
      ).join("");
      return { code: missing.length > 0 ? 1 : 0, stdout, stderr };
    })
    .on("sysctl -w ", ({ args }) => {
      let stderr = "";
      for (const [name = "", value = ""] of args.slice(1).map((arg) => arg.split("="))) {
        this.written.push(`${name}=${value}`);
        if (!this.readOnly.has(name)) this.settings.set(name, value);
        else stderr += `sysctl: setting key "${name}": Read-only file system\n`;
      }
      return { code: stderr === "" ? 0 : 1, stderr };
    });
}

function request(name: string, value: string, atLeast?: boolean): HostSettingRequest {
  return { name, value, ...(atLeast !== undefined && { atLeast }), purpose: "do something" };
}

/** The settings that two backends ask for, and those of a configuration. */
function stage(
  { commands }: Pick<FakeKernel, "commands">,
  requests: readonly HostSettingRequest[],
  { usesConntrack = false, ...proxy }: Partial<KubeProxyConfiguration> & {
    readonly usesConntrack?: boolean;
  } = {},
) {
  const logger = new MemoryLogger();
  const wanted = [...requests];
  const backends = (["IPv4", "IPv6"] as const).map((family) => (
    { family, usesConntrack, hostSettings: () => wanted }
  ));
  const all = { ...defaultConfiguration(), ...proxy };
  const settings = new HostSettings({ commands, logger }, "iptables", backends, () => all);
  const states = () => settings.outcomes.map(({ name, state }) => `${state} ${name}`);
  return { settings, logger, states, wanted };
}

Deno.test("HostSettings writes only differing settings, in the order of the requests", async () => {
  const kernel = new FakeKernel();
  kernel.settings.set(MAX, "999").set(BUCKETS, "1024").set("larger", "10").set(LOCALNET, "0");
  const { settings, logger, states } = stage(kernel, [
    request(MAX, "999"),
    request(BUCKETS, "65536", true),
    request("larger", "9", true),
    request(LOCALNET, "1"),
  ]);
  await settings.apply();
  assertEquals(kernel.written, [`${BUCKETS}=65536`, `${LOCALNET}=1`]);
  assertEquals(kernel.commands.calls.length, 3, "they are read, written and read again");
  assertEquals(states(), [
    `kept ${MAX}`,
    `changed ${BUCKETS}`,
    "kept larger",
    `changed ${LOCALNET}`,
  ]);
  assertEquals(logger.lines.map(({ level }) => level), ["info", "info"]);
});

Deno.test("HostSettings continues after a refusal, and names the command for an admin", async () => {
  const kernel = new FakeKernel();
  kernel.settings.set(MAX, "1").set(LOCALNET, "0");
  kernel.readOnly.add(MAX);
  const { settings, logger, states } = stage(kernel, [request(MAX, "2"), request(LOCALNET, "1")]);
  await settings.apply();
  assertEquals(states(), [`refused ${MAX}`, `changed ${LOCALNET}`]);
  assertEquals(settings.outcomes[0], {
    name: MAX,
    wanted: "2",
    found: "1",
    state: "refused",
    purpose: "do something",
    reason: "Read-only file system",
    cure: `sysctl -w ${MAX}=2`,
  });
  assertEquals(logger.lines.filter(({ level }) => level === "warn").length, 1);
});

Deno.test("HostSettings finds a value that did not take, though sysctl ended with 0", async () => {
  const kernel = new FakeKernel();
  kernel.settings.set(MAX, "1");
  kernel.commands.on("sysctl -w", {});
  const { settings } = stage(kernel, [request(MAX, "2")]);
  await settings.apply();
  assertEquals(settings.outcomes[0]?.reason, "it is still 1");
});

Deno.test("HostSettings retries settings of modules that the first rules loaded", async () => {
  const kernel = new FakeKernel();
  const { settings, logger, states, wanted } = stage(kernel, [request(MAX, "2")]);
  await settings.apply();
  assertEquals([states(), logger.lines], [[`refused ${MAX}`], []]);
  const running = settings.run(new AbortController().signal);
  kernel.settings.set(MAX, "1").set(LOCALNET, "1");
  wanted.push(request(LOCALNET, "1"));
  settings.onInterfaceAddresses();
  await settle();
  settings.synced();
  await running;
  assertEquals(states(), [`changed ${MAX}`, `kept ${LOCALNET}`]);
  await settings.run(new AbortController().signal);
});

Deno.test("HostSettings reports settings that the kernel does not know after the last attempt", async () => {
  const { networkPolicy } = defaultConfiguration();
  const policed = { networkPolicy: { ...networkPolicy, enabled: true } };
  const { settings, logger, states } = stage(new FakeKernel(), [request(MAX, "2")], policed);
  await settings.apply({ isFinal: true });
  assertEquals(logger.lines.map(({ level }) => level), ["warn", "warn", "warn"]);
  const [ofConntrack, ofBridges] = logger.lines.map(({ fields }) => fields);
  assertStringIncludes(String(ofConntrack!.cure), "modprobe nf_conntrack && sysctl -w");
  assertEquals([ofBridges!.reason, ofBridges!.cure], [
    "this kernel has no such setting now: module br_netfilter is not loaded",
    "modprobe br_netfilter && sysctl -w net.bridge.bridge-nf-call-iptables=1",
  ]);
  assertStringIncludes(String(ofBridges!.purpose), "traffic between pods on one bridge");
  assertEquals(states().length, 3);
  await settings.run(new AbortController().signal);
  assertEquals(logger.lines.length, 3);
});

Deno.test("HostSettings forgets the settings of an interface that is gone, and sets them once it is back", async () => {
  const name = "net.ipv4.conf.eth1.arp_ignore";
  const kernel = new FakeKernel();
  kernel.settings.set(LOCALNET, "1").set(name, "0");
  const { settings, states, wanted } = stage(kernel, [request(LOCALNET, "1")]);
  const report = async () => {
    settings.onInterfaceAddresses();
    await settle();
    return states();
  };
  await settings.apply();
  for (let times = 0; times < 2; times++) {
    assertEquals(await report(), [`kept ${LOCALNET}`]);
    kernel.settings.set(name, "0");
    wanted.push(request(name, "1"));
    for (const _ of [1, 2]) assertEquals(await report(), [`kept ${LOCALNET}`, `changed ${name}`]);
    wanted.pop();
  }
  assertEquals(kernel.written, [`${name}=1`, `${name}=1`]);
});

const NOTHING: KubeProxyConfiguration["conntrack"] = {
  maxPerCore: 0,
  min: 131_072,
  tcpEstablishedTimeout: 0,
  tcpCloseWaitTimeout: 0,
  tcpBeLiberal: false,
  udpTimeout: 0,
  udpStreamTimeout: 0,
};

/** The names and values that are wanted for connection tracking, and the tool that counts processors. */
async function conntrackRequests(
  conntrack: Partial<KubeProxyConfiguration["conntrack"]>,
  nproc: Parameters<FakeCommandRunner["on"]>[1] = { stdout: "8\n" },
) {
  const kernel = new FakeKernel();
  kernel.commands.on("nproc --all", nproc);
  const proxy = { conntrack: { ...NOTHING, ...conntrack }, usesConntrack: true };
  const { settings } = stage(kernel, [], proxy);
  await settings.apply();
  const counted = kernel.commands.calls.some(({ program }) => program === "nproc");
  return { found: settings.outcomes.map(({ name, wanted }) => `${name} = ${wanted}`), counted };
}

/** control-plane 2.8: maxPerCore, min, CPUs, and the result. */
for (
  const [maxPerCore, min, cpus, expected] of [
    [32_768, 131_072, 8, 262_144],
    [32_768, 131_072, 2, 131_072],
    [32_768, 131_072, 64, 1_048_576],
    [32_768, 2_000_000, 64, 1_048_576],
    [32_768, 2_000_000, 2, 2_000_000],
  ] as const
) {
  Deno.test(`HostSettings makes room for ${maxPerCore} connections for each of ${cpus} CPUs, at least ${min}`, async () => {
    const { found } = await conntrackRequests({ maxPerCore, min }, { stdout: `${cpus}\n` });
    assertEquals(found, [`${MAX} = ${expected}`, `${BUCKETS} = ${expected / 4}`]);
  });
}

for (const nproc of [{ code: 1, stderr: "no --all" }, { stdout: "many\n" }]) {
  Deno.test(`HostSettings goes by the runtime's count if nproc answers ${JSON.stringify(nproc)}`, async () => {
    const { found } = await conntrackRequests({ maxPerCore: 1, min: 0 }, nproc);
    assertEquals(found[0], `${MAX} = ${navigator.hardwareConcurrency}`);
  });
}

Deno.test("HostSettings wants nothing that is left to the kernel, and counts no CPUs then", async () => {
  assertEquals(await conntrackRequests({}), { found: [], counted: false });
});

Deno.test("HostSettings wants everything in upstream's order, and a second of any part of one", async () => {
  const { found } = await conntrackRequests({
    maxPerCore: 32_768,
    tcpEstablishedTimeout: 86_400_000,
    tcpCloseWaitTimeout: 500,
    tcpBeLiberal: true,
    udpTimeout: 30_900,
    udpStreamTimeout: 180_000,
  });
  assertEquals(found, [
    "net.netfilter.nf_conntrack_max = 262144",
    "net.netfilter.nf_conntrack_buckets = 65536",
    "net.netfilter.nf_conntrack_tcp_timeout_established = 86400",
    "net.netfilter.nf_conntrack_tcp_timeout_close_wait = 1",
    "net.netfilter.nf_conntrack_tcp_be_liberal = 1",
    "net.netfilter.nf_conntrack_udp_timeout = 30",
    "net.netfilter.nf_conntrack_udp_timeout_stream = 180",
  ]);
});
