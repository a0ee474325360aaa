import { FakeCommandRunner } from "../../../tests/support/fakes/fake_command_runner.ts";
import { MemoryLogger } from "../../../tests/support/fakes/memory_logger.ts";
import { defaultConfiguration } from "../../config/configuration.ts";
import type { HostSettingRequest } from "../../proxy/host_setting.ts";
import {
  BRIDGE_SETTINGS,
  type ConntrackLimits,
  conntrackMax,
  conntrackSettings,
  cpuCount,
  hostSettingRequests,
  HostSettings,
  type RequestingBackend,
} from "./host_settings.ts";
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

function stage(kernel: FakeKernel, requests: readonly HostSettingRequest[]) {
  const logger = new MemoryLogger();
  const settings = new HostSettings({ commands: kernel.commands, logger }, requests);
  const states = () => settings.outcomes.map(({ name, state }) => `${state} ${name}`);
  return { settings, logger, states };
}

Deno.test("HostSettings.apply() writes only differing settings, in the order of the requests", async () => {
  const kernel = new FakeKernel();
  kernel.settings.set(MAX, "262144").set(BUCKETS, "1024").set(LOCALNET, "0");
  const { settings, logger, states } = stage(kernel, [
    request(MAX, "262144"),
    request(BUCKETS, "65536", true),
    request(LOCALNET, "1"),
    request(LOCALNET, "1"),
  ]);
  await settings.apply();
  assertEquals(kernel.written, [`${BUCKETS}=65536`, `${LOCALNET}=1`]);
  assertEquals(kernel.commands.calls.length, 3, "they are read, written and read again");
  assertEquals(states(), [`kept ${MAX}`, `changed ${BUCKETS}`, `changed ${LOCALNET}`]);
  assertEquals(logger.lines.map(({ level }) => level), ["info", "info"]);
});

Deno.test("HostSettings.apply() leaves a larger number alone if that is as good", async () => {
  const kernel = new FakeKernel();
  kernel.settings.set(MAX, "999").set(BUCKETS, "999");
  const { settings } = stage(kernel, [request(MAX, "100"), request(BUCKETS, "100", true)]);
  await settings.apply();
  assertEquals(kernel.written, [`${MAX}=100`]);
});

Deno.test("HostSettings.apply() continues after a refusal, and names the command for an admin", async () => {
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

Deno.test("HostSettings.apply() finds a value that did not take, though sysctl ended with 0", async () => {
  const kernel = new FakeKernel();
  kernel.settings.set(MAX, "1");
  kernel.commands.on("sysctl -w", {});
  const { settings } = stage(kernel, [request(MAX, "2")]);
  await settings.apply();
  assertEquals(settings.outcomes[0]?.reason, "it is still 1");
});

Deno.test("HostSettings.apply() treats a missing tool as a refusal", async () => {
  const kernel = new FakeKernel();
  kernel.commands.failNext("not-found");
  const { settings, states } = stage(kernel, [request(LOCALNET, "1")]);
  await settings.apply();
  assertEquals(states(), [`refused ${LOCALNET}`]);
  assertEquals(settings.outcomes[0]?.cure, `sysctl -w ${LOCALNET}=1`);
});

Deno.test("HostSettings.run() retries settings of modules that the first rules loaded", async () => {
  const kernel = new FakeKernel();
  const { settings, logger, states } = stage(kernel, [request(MAX, "2")]);
  await settings.apply();
  assertEquals([states(), logger.lines], [[`refused ${MAX}`], []]);
  const running = settings.run(new AbortController().signal);
  kernel.settings.set(MAX, "1");
  settings.synced();
  await running;
  assertEquals(states(), [`changed ${MAX}`]);
});

Deno.test("HostSettings reports settings that the kernel does not know after the last attempt", async () => {
  const { settings, logger } = stage(new FakeKernel(), [request(MAX, "2")]);
  await settings.apply({ final: true });
  assertEquals(logger.lines.map(({ level }) => level), ["warn"]);
  assertStringIncludes(String(logger.lines[0]?.fields.cure), "modprobe nf_conntrack && sysctl -w");
  await settings.run(new AbortController().signal);
  assertEquals(logger.lines.length, 1);
});

Deno.test("HostSettings names the module of settings of bridges, and the effect of its absence", async () => {
  const { settings, logger } = stage(new FakeKernel(), BRIDGE_SETTINGS);
  await settings.apply({ final: true });
  const { level, fields } = logger.lines[0]!;
  assertEquals([level, fields.reason, fields.cure], [
    "warn",
    "this kernel has no such setting now: module br_netfilter is not loaded",
    "modprobe br_netfilter && sysctl -w net.bridge.bridge-nf-call-iptables=1",
  ]);
  assertStringIncludes(String(fields.purpose), "traffic between pods on one bridge");
});

Deno.test("HostSettings.run() ends with the process", async () => {
  const { settings } = stage(new FakeKernel(), [request(MAX, "2")]);
  await settings.apply();
  const controller = new AbortController();
  const running = settings.run(controller.signal);
  controller.abort();
  await running;
  assertEquals(settings.outcomes[0]?.state, "refused");
});

Deno.test("HostSettings.add() applies new settings once", async () => {
  const name = "net.ipv4.conf.eth1.arp_ignore";
  const kernel = new FakeKernel();
  kernel.settings.set(LOCALNET, "1").set(name, "0");
  const { settings, logger, states } = stage(kernel, [request(LOCALNET, "1")]);
  await settings.apply();
  for (let times = 0; times < 2; times++) {
    await settings.add([request(LOCALNET, "1"), request(name, "1")]);
    assertEquals(states(), [`kept ${LOCALNET}`, `changed ${name}`]);
  }
  assertEquals(kernel.written, [`${name}=1`]);
  assertEquals(logger.lines.map(({ level }) => level), ["info"]);
});

Deno.test("HostSettings.add() forgets the settings of an interface that is gone, and sets them once it is back", async () => {
  const name = "net.ipv4.conf.eth1.arp_ignore";
  const kernel = new FakeKernel();
  kernel.settings.set(MAX, "1").set(LOCALNET, "1").set(name, "0");
  const ofMode = [request(LOCALNET, "1"), request(name, "1")];
  const { commands } = kernel;
  const logger = new MemoryLogger();
  const settings = new HostSettings({ commands, logger }, [request(MAX, "1"), ...ofMode], ofMode);
  const states = () => settings.outcomes.map(({ name, state }) => `${state} ${name}`);
  await settings.apply();
  for (let times = 0; times < 2; times++) {
    await settings.add([request(LOCALNET, "1")]);
    assertEquals(states(), [`kept ${MAX}`, `kept ${LOCALNET}`]);
    kernel.settings.set(name, "0");
    await settings.add(ofMode);
    assertEquals(states(), [`kept ${MAX}`, `kept ${LOCALNET}`, `changed ${name}`]);
  }
  assertEquals(kernel.written, Array.from({ length: 3 }, () => `${name}=1`));
});

const proxy = defaultConfiguration();
const FORWARD = { name: "net.ipv4.ip_forward", value: "1", purpose: "forward packets" };

function backend(usesConntrack: boolean): RequestingBackend {
  return { family: "IPv4", usesConntrack, hostSettings: () => [FORWARD] };
}

Deno.test("hostSettingRequests() wants conntrack's settings first, for the CPUs of the machine", async () => {
  const commands = new FakeCommandRunner().on("nproc --all", { stdout: "8\n" });
  const requests = await hostSettingRequests({ commands }, {
    proxy,
    mode: "iptables",
    backends: [backend(true)],
  });
  assertEquals(requests[0]?.value, "262144");
  assertEquals(requests.at(-1), FORWARD);
});

Deno.test("hostSettingRequests() wants nothing of conntrack for a mode that has none", async () => {
  const commands = new FakeCommandRunner();
  const backends = [backend(false)];
  assertEquals(await hostSettingRequests({ commands }, { proxy, mode: "userspace", backends }), [
    FORWARD,
  ]);
  assertEquals(commands.calls, []);
});

Deno.test("hostSettingRequests() wants bridged packets to pass the rules for NetworkPolicy, in any mode", async () => {
  const commands = new FakeCommandRunner();
  const networkPolicy = { ...proxy.networkPolicy, enabled: true };
  const requests = await hostSettingRequests({ commands }, {
    proxy: { ...proxy, networkPolicy },
    mode: "userspace",
    backends: [backend(false)],
  });
  assertEquals(requests.map(({ name }) => name), [
    FORWARD.name,
    "net.bridge.bridge-nf-call-iptables",
    "net.bridge.bridge-nf-call-ip6tables",
  ]);
});

Deno.test("hostSettingRequests() counts no CPUs if the size is left to the kernel", async () => {
  const commands = new FakeCommandRunner();
  const requests = await hostSettingRequests({ commands }, {
    proxy: { ...proxy, conntrack: { ...proxy.conntrack, maxPerCore: 0 } },
    mode: "iptables",
    backends: [backend(true)],
  });
  assertEquals(requests.some(({ name }) => name.endsWith("nf_conntrack_max")), false);
  assertEquals(commands.calls, []);
});

Deno.test("cpuCount() counts all CPUs of the machine", async () => {
  assertEquals(await cpuCount(new FakeCommandRunner().on("nproc --all", { stdout: "64\n" })), 64);
});

for (
  const [name, commands] of [
    ["is missing", new FakeCommandRunner().failNext("not-found")],
    ["fails", new FakeCommandRunner().on("nproc", { code: 1, stderr: "no --all" })],
    ["prints no number", new FakeCommandRunner().on("nproc", { stdout: "many\n" })],
  ] as const
) {
  Deno.test(`cpuCount() goes by the runtime's count if nproc ${name}`, async () => {
    assertEquals(await cpuCount(commands), navigator.hardwareConcurrency);
  });
}

/** control-plane 2.8: maxPerCore, min, CPUs, and the result. */
for (
  const [maxPerCore, min, cpus, expected] of [
    [32_768, 131_072, 8, 262_144],
    [32_768, 131_072, 2, 131_072],
    [32_768, 131_072, 32, 1_048_576],
    [32_768, 131_072, 64, 1_048_576],
    [32_768, 2_000_000, 64, 1_048_576],
    [32_768, 2_000_000, 2, 2_000_000],
    [1, 0, 4, 4],
    [0, 131_072, 8, undefined],
  ] as const
) {
  Deno.test(`conntrackMax() of ${maxPerCore} for each of ${cpus} CPUs, at least ${min}`, () => {
    assertEquals(conntrackMax({ maxPerCore, min }, cpus), expected);
  });
}

const NOTHING: ConntrackLimits = {
  maxPerCore: 0,
  min: 131_072,
  tcpEstablishedTimeout: 0,
  tcpCloseWaitTimeout: 0,
  tcpBeLiberal: false,
  udpTimeout: 0,
  udpStreamTimeout: 0,
};

Deno.test("conntrackSettings() sets nothing if all is left to the kernel", () => {
  assertEquals(conntrackSettings(NOTHING, 8), []);
});

Deno.test("conntrackSettings() wants everything in upstream's order, the hash as a lower bound", () => {
  const requests = conntrackSettings({
    maxPerCore: 32_768,
    min: 131_072,
    tcpEstablishedTimeout: 86_400_000,
    tcpCloseWaitTimeout: 3_600_000,
    tcpBeLiberal: true,
    udpTimeout: 30_900,
    udpStreamTimeout: 180_000,
  }, 8);
  const lines = requests.map(({ name, value, atLeast }) =>
    `${name} ${atLeast ? ">=" : "="} ${value}`
  );
  assertEquals(lines, [
    "net.netfilter.nf_conntrack_max = 262144",
    "net.netfilter.nf_conntrack_buckets >= 65536",
    "net.netfilter.nf_conntrack_tcp_timeout_established = 86400",
    "net.netfilter.nf_conntrack_tcp_timeout_close_wait = 3600",
    "net.netfilter.nf_conntrack_tcp_be_liberal = 1",
    "net.netfilter.nf_conntrack_udp_timeout = 30",
    "net.netfilter.nf_conntrack_udp_timeout_stream = 180",
  ]);
});

Deno.test("conntrackSettings() makes a second of any part of one", () => {
  const requests = conntrackSettings({ ...NOTHING, tcpEstablishedTimeout: 500, udpTimeout: 1 }, 8);
  assertEquals(requests.map(({ value }) => value), ["1", "1"]);
});
