import { assertEquals } from "@std/assert";
import { settle } from "../../../tests/support/fakes/fake_clock.ts";
import { FakeCommandRunner } from "../../../tests/support/fakes/fake_command_runner.ts";
import { parseIpAddress } from "../../net/ip_address.ts";
import { PrimaryAddresses } from "./primary_addresses.ts";

Deno.test("PrimaryAddresses notices a default route that comes without another address", async () => {
  const address = parseIpAddress("198.51.100.1");
  const commands = new FakeCommandRunner().on("ip ", { code: 2 });
  const seen: string[] = [];
  const onChange = (found: readonly string[]) => void seen.push(found.join());
  const primary = new PrimaryAddresses(commands, () => true, onChange);
  const ending = new AbortController();
  await primary.read();
  const running = primary.run(ending.signal);
  const report = async () => {
    primary.onInterfaceAddresses([{ address, interfaceName: "eth0" }]);
    await settle();
  };
  await report();
  commands.on("ip -4", { stdout: JSON.stringify([{ prefsrc: address }]) });
  for (let seconds = 0; seconds < 30; seconds += 10) await report();
  assertEquals(seen, [address]);
  // Three reads of both families: not each report causes one.
  assertEquals(commands.calls.length, 6);
  ending.abort();
  await running;
});
