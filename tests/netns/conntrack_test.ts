/**
 * Tests the table of tracked connections of a real kernel, with many flows. Which of them a sync makes
 * stale is beside `stale_flows.ts` and `conntrack_cleaner.ts`; clients that keep their sockets are in
 * the tests of packets and UDP flows of each mode.
 */
import { assert, assertEquals } from "@std/assert";
import { parseIpAddress } from "../../lib/net/ip_address.ts";
import { parsePort } from "../../lib/net/port.ts";
import { type CommandRunner, systemCommandRunner } from "../../lib/os/command_runner.ts";
import { createConntrack } from "../../lib/os/conntrack.ts";
import { Namespace, netnsRequirements } from "../support/stages/netns.ts";
import { program, testNeeding } from "../support/requirement.ts";

const test = testNeeding("tracked connections of a real kernel", [
  ...netnsRequirements(),
  program("conntrack"),
  program("iptables"),
]);

test("createConntrack() reads 20,000 flows line by line, and deletes thousands by one process", async () => {
  await using node = await Namespace.create("conntrack");
  // The kernel tracks the flows of a namespace only while some rule asks for their state.
  await node.output("iptables", "-A OUTPUT -m conntrack --ctstate INVALID -j DROP".split(" "));
  const commands: CommandRunner = {
    run: (program, args, options) =>
      systemCommandRunner.run("ip", ["netns", "exec", node.name, program, ...args], options),
  };
  const stdin = Array.from({ length: 20_000 }, (_, index) => {
    const client = `10.${2 + (index >> 16)}.${(index >> 8) & 255}.${index & 255}`;
    return `-I -p udp -s ${client} -d 10.96.0.10 --sport 5000 --dport 53 -r 10.1.0.${index % 5} ` +
      `-q ${client} --reply-port-src 53 --reply-port-dst 5000 -t 300\n`;
  });
  assertEquals((await commands.run("conntrack", ["-R", "-"], { stdin })).code, 0);
  const dns = parseIpAddress("10.96.0.10");
  let seen = 0;
  let longestRun = 0;
  let run = 0;
  const timer = setInterval(() => run = 0, 0);
  const conntrack = createConntrack(commands);
  const entries = await conntrack.listFlows("IPv4", {
    protocol: "UDP",
    ports: new Set([53, 54, 55, 56].map(parsePort)),
    onFlow({ destination }) {
      // Other programs of the machine may send packets in a new namespace, too.
      if (destination !== dns) return;
      seen++;
      longestRun = Math.max(longestRun, ++run);
    },
  });
  clearInterval(timer);
  assertEquals(seen, 20_000);
  assert(entries >= seen, `looked at ${entries}`);
  assert(longestRun < 20_000 / 4, `${longestRun} in one go: it was read as a whole`);
  const deleted = await conntrack.deleteFlows("IPv4", [{
    destination: dns,
    destinationPort: parsePort(53),
    replySource: parseIpAddress("10.1.0.2"),
    replySourcePort: parsePort(53),
  }], { protocol: "UDP" });
  assertEquals(deleted, 4_000);
  assertEquals((await node.output("conntrack", ["-C"])).trim(), "16000");
});
