/**
 * Addresses of node ports, with real packets: the primary one of a host without a cluster, and 127.0.0.1.
 */
import { assertEquals, assertStringIncludes } from "@std/assert";
import { ADDRESSES } from "../support/builders/address_plan.ts";
import { replaceFile } from "../support/builders/kubeconfig_file.ts";
import { manifestText, rawObjects } from "../support/builders/raw_objects.ts";
import {
  NODE_PORT,
  ON_NODE_PORTS,
  webServices,
  webSlices,
} from "../support/builders/web_service.ts";
import { ProbeClient } from "../support/drivers/echo_network.ts";
import { isMissing } from "../support/requirement.ts";
import { netnsRequirements } from "../support/stages/netns.ts";
import { RelayProcess } from "../support/stages/relay_process.ts";
import { RelayScene } from "../support/stages/relay_scene.ts";
import { RULE_MODES } from "../support/stages/rule_modes.ts";

const { IPv4 } = ADDRESSES;
const MODES = [
  ...RULE_MODES.map(({ name, args, requirements }) => ({ name, args, needs: requirements() })),
  { name: "userspace mode", args: ["--mode=userspace"], needs: netnsRequirements() },
];

/** Further flags, and whether node ports are then served on 127.0.0.1. */
const ON_LOOPBACK: readonly (readonly [flags: readonly string[], expected: boolean])[] = [
  [[`--nodeport-addresses=${IPv4.node}/32`], false],
  [["--nodeport-addresses=localhost"], true],
  [["--nodeport-addresses=localhost", "--iptables-localhost-nodeports=false"], false],
];

for (const { name, args, requirements, mode } of RULE_MODES) {
  Deno.test({
    name: `${name}: route_localnet is set only where node ports are served on 127.0.0.1`,
    ignore: isMissing(`route_localnet in ${name}`, requirements()),
    async fn() {
      await using scene = await RelayScene.create();
      await scene.write(webServices(ON_NODE_PORTS), webSlices("a1"));
      const { node } = scene.cluster;
      const setting = "net.ipv4.conf.all.route_localnet";
      for (const [flags, expected] of ON_LOOPBACK) {
        // The setting of iptables mode is none of nftables mode.
        if (mode !== "iptables" && flags.length > 1) continue;
        await node.sysctl(`${setting}=0`);
        const relay = scene.start([...args, ...flags]);
        await relay.settled();
        const value = (await node.output("sysctl", ["-n", setting])).trim();
        assertEquals(value, expected ? "1" : "0", flags.join(" "));
        assertEquals(await relay.stop(), 0, relay.log);
      }
    },
  });
}

for (const { name, args, needs } of MODES) {
  Deno.test({
    name: `${name}: without a Node, node ports are on the source address of the default route`,
    ignore: isMissing(`node ports in ${name}`, needs),
    async fn() {
      await using scene = await RelayScene.create();
      const { cluster: { node, client }, folder } = scene;
      const text = manifestText([
        ...rawObjects("Service", ...webServices(ON_NODE_PORTS)),
        ...rawObjects("EndpointSlice", ...webSlices("a1")),
      ]);
      await replaceFile(`${folder}/manifests/objects.yaml`, text);
      const primary = "--nodeport-addresses=primary";
      const relay = scene.start([...args, ...name.startsWith("nftables") ? [] : [primary]]);
      const status = await relay.settled();
      assertEquals(status.sources.find((each) => each.name === "Node ports"), undefined, relay.log);
      assertStringIncludes(relay.log, `${IPv4.node} (default route)`);
      const probe = ProbeClient.start(client);
      const target = { protocol: "TCP", address: IPv4.node, port: NODE_PORT } as const;
      assertEquals(await probe.who(target), "pod-a1");
      assertEquals(await probe.who({ ...target, address: IPv4.nodeSecond }), "refused");
      // The plan of a dump is the same.
      const control = `--control-socket=${folder}/control.sock`;
      await RelayProcess.run(node, { folder, args: ["dump", `${folder}/dump.json`, control] });
      const ends = [IPv4.client, `${IPv4.node}:${NODE_PORT}`];
      const line = ["explain", ...ends, `--from=${folder}/dump.json`];
      assertStringIncludes(await RelayProcess.run(node, { folder, args: line }), "FORWARDED");

      await node.ip("route del default");
      await node.ip(`addr add 192.0.2.9/32 dev lo`);
      const changed = await relay.until(
        "it is said",
        ({ sources }) => sources.some((each) => each.name === "Node ports"),
      );
      const [problem] = changed.sources.find((each) => each.name === "Node ports")!.problems;
      assertStringIncludes(problem!, "the primary address of the node is not known");
      assertStringIncludes(problem!, "--nodeport-addresses");
      await relay.logged("No address of this node serves node ports");
      assertEquals(await relay.stop(), 0, relay.log);
    },
  });
}
