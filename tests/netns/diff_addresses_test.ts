/**
 * Tests that damage to the addresses and routes of userspace mode is found, named and repaired, and
 * that foreign addresses on `lo` stay.
 */
import { assertEquals, assertRejects } from "@std/assert";
import { createFileStore } from "../../backends/userspace/addresses/address_store.ts";
import { addAddressLine, localRouteLine } from "../../backends/userspace/addresses/addresses.ts";
import { userspaceComparison } from "../../backends/userspace/userspace_comparison.ts";
import { parseCidr } from "../../lib/net/cidr.ts";
import { IP_FAMILIES, parseIpAddress } from "../../lib/net/ip_address.ts";
import { type CommandRunner, systemCommandRunner } from "../../lib/os/command_runner.ts";
import { testProxyPlan, testServicePlan } from "../support/builders/service_plans.ts";
import { eventually } from "../support/eventually.ts";
import { testNeeding } from "../support/requirement.ts";
import { Namespace, netnsRequirements } from "../support/stages/netns.ts";

const test = testNeeding("damage to addresses on lo", netnsRequirements());

/** The differences between the families. */
const PLAN = {
  IPv4: {
    vips: ["172.30.0.1", "172.30.0.2"],
    stale: "172.30.0.9",
    foreign: "192.0.2.7/24",
    range: "172.31.0.0/16",
    whole: 32,
    wider: 24,
  },
  IPv6: {
    vips: ["fd00:30::1", "fd00:30::2"],
    stale: "fd00:30::9",
    foreign: "fd00:7::7/64",
    range: "fd00:31::/112",
    whole: 128,
    wider: 64,
  },
} as const;

for (const family of IP_FAMILIES) {
  test(`userspace (${family}): diff names damage to addresses, and a repair corrects nothing else`, async (t) => {
    const { vips, stale, foreign, range, whole, wider } = PLAN[family];
    const [first, second] = vips;
    const folder = await Deno.makeTempDir();
    await using node = await Namespace.create("addresses");
    const runner: CommandRunner = {
      run: (program, args, options) =>
        systemCommandRunner.run("ip", ["netns", "exec", node.name, program, ...args], options),
    };
    const store = createFileStore({ directory: folder, family });
    const record = {
      addresses: new Set([...vips, stale].map(parseIpAddress)),
      routes: new Set([parseCidr(range)]),
      standIns: new Map(),
    };
    await store.save(record);
    await node.ipBatch([
      ...vips.map((address) => addAddressLine(parseIpAddress(address))),
      localRouteLine("add", parseCidr(range)),
      `addr add ${foreign} dev lo`,
      "link add other type bridge",
      "link set other up",
    ]);
    const services = vips.map((clusterIp, index) =>
      testServicePlan({ name: `web-${index}`, clusterIp })
    );
    const plan = testProxyPlan(services, { family });
    const { compare, repair } = userspaceComparison({ runner, store }, { family });
    const state = async () => {
      const routes = `${family === "IPv6" ? "-6" : "-4"} route show table local type local`;
      return [await node.ip("addr show dev lo"), await node.ip(routes)].join("").split("\n")
        .map((line) => line.trim()).filter((line) => !line.startsWith("local fe80:")).sort()
        .join("\n");
    };
    // The kernel adds the route of a new address, and takes its mark `tentative` away, in its own time. If
    // the address is deleted before, its route may come back.
    const isSettled = (text: string) =>
      !text.includes(" tentative") && vips.every((vip) => text.includes(`local ${vip} dev lo`));
    const settled = () =>
      eventually("every address has its route", async () => {
        const text = await state();
        return isSettled(text) ? text : undefined;
      });
    const before = await settled();
    assertEquals(await compare(plan), []);
    const rows: readonly (readonly [damage: readonly string[], ...found: string[]])[] = [
      [[`addr del ${first}/${whole} dev lo`], `missing address ${first} on lo [web-0]`],
      [
        vips.map((address) => `addr del ${address}/${whole} dev lo`),
        `missing address ${first} on lo [web-0]`,
        `missing address ${second} on lo [web-1]`,
      ],
      [
        [`addr del ${first}/${whole} dev lo`, `addr add ${first}/${wider} dev lo`],
        `altered address ${first} on lo [web-0]`,
      ],
      [[`addr add ${stale}/${whole} dev lo`], `extra address ${stale} on lo`],
      [[`route del local ${range} dev lo`], `missing route local ${range}`],
      [
        [`route del local ${range} dev lo`, `route add local ${range} dev other`],
        `altered route local ${range}`,
      ],
    ];
    for (const [damage, ...expected] of rows) {
      await t.step(damage.join("; "), async () => {
        await node.ipBatch(damage);
        const found = await compare(plan);
        const texts = found.map(({ kind, object, name, key }) =>
          `${kind} ${object} ${name}${key === undefined ? "" : ` [${key.split(/[/]/)[1]}]`}`
        );
        assertEquals(texts.sort(), [...expected].sort());
        await repair(plan);
        assertEquals(await compare(plan), []);
        assertEquals(await settled(), before);
      });
    }
    await t.step("two simultaneous repairs succeed", async () => {
      const damage = vips.map((address) => `addr del ${address}/${whole} dev lo`);
      await node.ipBatch(damage);
      let isFirst = true;
      const slower: CommandRunner = {
        async run(program, args, options) {
          const isWrite = args.includes("-batch");
          if (isWrite && isFirst) await repair(plan);
          isFirst &&= !isWrite;
          return await runner.run(program, args, options);
        },
      };
      const other = userspaceComparison({ runner: slower, store }, { family });
      await other.repair(plan);
      assertEquals(await settled(), before);
      await node.ipBatch(damage);
      const mute: CommandRunner = {
        run: (program, args, options) =>
          args.includes("-batch")
            ? Promise.resolve({ code: 2, stdout: "", stderr: "Operation not permitted\n" })
            : runner.run(program, args, options),
      };
      const refused = userspaceComparison({ runner: mute, store }, { family });
      await assertRejects(() => refused.repair(plan), Error, "Operation not permitted");
    });
    await Deno.remove(folder, { recursive: true });
  });
}
