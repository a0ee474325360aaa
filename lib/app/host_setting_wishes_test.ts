import { assertEquals } from "@std/assert";
import { FakeCommandRunner } from "../../tests/support/fake_command_runner.ts";
import { defaultConfiguration } from "../config/configuration_schema.ts";
import { hostSettingWishes, type WishingBackend } from "./host_setting_wishes.ts";

const { conntrack } = defaultConfiguration();
const FORWARD = { name: "net.ipv4.ip_forward", value: "1", purpose: "forward packets" };

function backend(usesConntrack: boolean): WishingBackend {
  return { usesConntrack, hostSettings: () => [FORWARD] };
}

Deno.test("hostSettingWishes() wants conntrack's settings first, for the CPUs of the machine", async () => {
  const commands = new FakeCommandRunner().on("nproc --all", { stdout: "8\n" });
  const wishes = await hostSettingWishes({ commands }, { conntrack, backends: [backend(true)] });
  assertEquals(wishes[0]?.value, "262144");
  assertEquals(wishes.at(-1), FORWARD);
});

Deno.test("hostSettingWishes() wants nothing of conntrack for a mode that has none", async () => {
  const commands = new FakeCommandRunner();
  const backends = [backend(false), { usesConntrack: false }];
  assertEquals(await hostSettingWishes({ commands }, { conntrack, backends }), [FORWARD]);
  assertEquals(commands.calls, []);
});

Deno.test("hostSettingWishes() counts no CPUs where the size is left to the kernel", async () => {
  const commands = new FakeCommandRunner();
  const wishes = await hostSettingWishes({ commands }, {
    conntrack: { ...conntrack, maxPerCore: 0 },
    backends: [backend(true)],
  });
  assertEquals(wishes.some(({ name }) => name.endsWith("nf_conntrack_max")), false);
  assertEquals(commands.calls, []);
});
