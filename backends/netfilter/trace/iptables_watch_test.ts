import { assertEquals } from "@std/assert";
import { type IpFamily, parseIpAddress } from "../../../lib/net/ip_address.ts";
import { parsePort } from "../../../lib/net/port.ts";
import { systemClock } from "../../../lib/os/clock.ts";
import { systemNetwork } from "../../../lib/os/network.ts";
import { FakeCommandRunner } from "../../../tests/support/fakes/fake_command_runner.ts";
import { createIptablesTrace } from "./iptables_watch.ts";

/** A machine with iptables-legacy alone, whose kernel logs packets of this family by this logger. */
function legacyMachine(logger: string): FakeCommandRunner {
  return new FakeCommandRunner()
    .on("", { stdout: "" })
    .on("ip6tables-restore --version", { stdout: "ip6tables-restore v1.8.9 (legacy)\n" })
    .on("iptables-restore --version", { stdout: "iptables-restore v1.8.9 (legacy)\n" })
    .on("sysctl net.netfilter.nf_log.2", { stdout: `net.netfilter.nf_log.2 = ${logger}\n` })
    .on("sysctl net.netfilter.nf_log.10", { stdout: `net.netfilter.nf_log.10 = ${logger}\n` });
}

async function wayOn(commands: FakeCommandRunner, family: IpFamily): Promise<string> {
  const edges = { clock: systemClock, network: systemNetwork, commands, id: "7" };
  await using watch = await createIptablesTrace(edges)({
    family,
    from: undefined,
    sourcePort: parsePort(4000),
    to: parseIpAddress(family === "IPv6" ? "fd00::1" : "10.96.0.1"),
    port: parsePort(80),
    protocol: "TCP",
    comesFrom: "this machine",
  }, { signal: new AbortController().signal });
  return watch.way;
}

for (const family of ["IPv4", "IPv6"] as const) {
  const save = family === "IPv6" ? "ip6tables-save" : "iptables-save";
  Deno.test(`${family}: a kernel that logs no packet is not listened to`, async () => {
    const commands = legacyMachine("NONE");
    assertEquals(await wayOn(commands, family), `${save} -c, before and after`);
    assertEquals(commands.calls.filter(({ line }) => /^nft -[ci]|--pdeathsig/.test(line)), []);
  });
}

Deno.test("counters replace a log that should work and shows nothing", async () => {
  const commands = legacyMachine("nf_log_ipv4").on("nft -i", { code: 1, stderr: "no" });
  assertEquals(await wayOn(commands, "IPv4"), "iptables-save -c, before and after");
  assertEquals(commands.calls.some(({ line }) => line === "nft -c -f -"), true);
});
