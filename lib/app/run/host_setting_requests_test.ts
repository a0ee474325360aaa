import { assertEquals } from "@std/assert";
import { FakeCommandRunner } from "../../../tests/support/fakes/fake_command_runner.ts";
import { defaultConfiguration } from "../../config/configuration.ts";
import { cpuCount, hostSettingRequests, type RequestingBackend } from "./host_setting_requests.ts";

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
