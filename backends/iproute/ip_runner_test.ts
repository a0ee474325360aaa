import { assertEquals, assertRejects } from "@std/assert";
import { FakeCommandRunner } from "../../tests/support/fakes/fake_command_runner.ts";
import { parseIpAddress } from "../../lib/net/ip_address.ts";
import { CommandError } from "../../lib/os/command_runner.ts";
import { BatchRefusal } from "../netfilter/tool_batch.ts";
import { DummyDevice } from "./dummy_devices.ts";
import { IpRunner } from "./ip_runner.ts";

Deno.test("IpRunner reads addresses of any device, and knows one that does not exist", async () => {
  const commands = new FakeCommandRunner()
    .on("ip -4 -j addr show dev eth0", {
      stdout: '[{"ifname":"eth0","addr_info":[{"local":"192.0.2.1","prefixlen":24}]}]',
    })
    .on("ip -4 -j addr show dev eth1", { code: 1, stderr: 'Device "eth1" does not exist.\n' })
    .on("ip -4 -j addr show dev eth2", { code: 1, stderr: "Cannot open netlink socket\n" });
  const ip = new IpRunner(commands, { family: "IPv4" });
  const found = await ip.addresses("eth0");
  assertEquals(found?.map(({ address, prefixLength }) => `${address}/${prefixLength}`), [
    "192.0.2.1/24",
  ]);
  assertEquals(await ip.addresses("eth1"), undefined);
  await assertRejects(() => ip.addresses("eth2"), CommandError, "Cannot open netlink socket");
});

Deno.test("IpRunner reads routes of any table", async () => {
  const commands = new FakeCommandRunner()
    .on("ip -j route show table 250", { stdout: '[{"dst":"default","gateway":"192.0.2.1"}]' });
  const routes = await new IpRunner(commands).routes("250");
  assertEquals(routes, [{ gateways: [parseIpAddress("192.0.2.1")] }]);
});

Deno.test("IpRunner.batch() continues after a failure and gives each item its reason", async () => {
  const stderr = "RTNETLINK answers: File exists\nCommand failed -:2\n";
  const commands = new FakeCommandRunner().on("ip -6 -force -batch -", { code: 1, stderr });
  const failures = await new IpRunner(commands, { family: "IPv6" })
    .batch(["a", "b"], (item) => `link del ${item}`);
  assertEquals([...failures].map(([item, { kind }]) => [item, kind]), [["b", "exists"]]);
  assertEquals(commands.calls.map(({ stdin }) => stdin), ["link del a\nlink del b\n"]);
});

Deno.test("IpRunner.run() stops at the first line that fails, and reports it", async () => {
  const stderr = 'Cannot find device "x"\nCommand failed -:1\n';
  const commands = new FakeCommandRunner().on("ip -batch -", { code: 1, stderr });
  const run = () => new IpRunner(commands).run(["link del x"]);
  assertEquals((await assertRejects(run, BatchRefusal)).line, 1);
});

Deno.test("DummyDevice.make() refuses a device of another kind", async () => {
  const commands = new FakeCommandRunner()
    .on("ip link add", { code: 2, stderr: "RTNETLINK answers: File exists\n" })
    .on("ip -o link show type dummy", { stdout: "7: other0: <BROADCAST,NOARP> mtu 1500\n" });
  await new DummyDevice(commands, "other0").make();
  const error = await assertRejects(() => new DummyDevice(commands, "eth0").make(), Error);
  assertEquals(error.message.startsWith("Cannot use device eth0: "), true);
});
