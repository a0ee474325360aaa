import { assertEquals } from "@std/assert";
import { FakeCommandRunner } from "../../../tests/support/fakes/fake_command_runner.ts";
import { MemoryLogger } from "../../../tests/support/fakes/memory_logger.ts";
import { parseIpAddress } from "../../net/ip_address.ts";
import { chooseFamilies } from "./choose_families.ts";

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
