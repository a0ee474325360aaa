import { assertEquals } from "@std/assert";
import { testProxyPlan } from "../../tests/support/builders/service_plans.ts";
import { parseIpAddress } from "../../lib/net/ip_address.ts";
import { damagedServices } from "../../tests/support/builders/damaged_services.ts";
import { IpvsStage } from "../../tests/support/stages/ipvs_stage.ts";
import type { DataPlaneDifference } from "../../lib/proxy/data_plane.ts";
import type { DamageRow } from "../../tests/support/stages/damage/damaged_modes.ts";

const WEB = "172.30.0.1:80/TCP";

function row(
  name: string,
  lines: readonly string[],
  ...found: readonly string[]
): DamageRow {
  return { name, damage: lines.join("\n"), found };
}

/** Every object of the mode, with each possible damage. */
const IPVS_DAMAGE: readonly DamageRow[] = [
  ...serverRows(),
  ...setRows(),
  row(
    "an address is deleted",
    ["ip addr del 172.30.0.1/32 dev kube-ipvs0"],
    "missing address 172.30.0.1 [ns/web]",
  ),
  row(
    "a strange address is added",
    ["ip addr replace 192.0.2.99/32 dev kube-ipvs0"],
    "extra address 192.0.2.99",
  ),
  row("the device is deleted", ["ip link del kube-ipvs0"], "missing device kube-ipvs0"),
];

function serverRows(): readonly DamageRow[] {
  return [
    row(
      "a virtual server is deleted",
      ["ipvsadm -D -t 172.30.0.1:80"],
      `missing virtual server ${WEB} [ns/web]`,
    ),
    row(
      "a virtual server distributes in another way",
      ["ipvsadm -E -t 172.30.0.1:80 -s lc"],
      `altered virtual server ${WEB} [ns/web]`,
    ),
    row(
      "a virtual server with affinity forgets its clients",
      ["ipvsadm -E -t 172.30.0.2:80 -s rr"],
      "altered virtual server 172.30.0.2:80/TCP [ns/sticky]",
    ),
    row(
      "a virtual server is added to an address of a Service",
      ["ipvsadm -A -t 172.30.0.1:8443 -s rr"],
      "extra virtual server 172.30.0.1:8443/TCP",
    ),
    row(
      "a real server is deleted",
      ["ipvsadm -d -t 172.30.0.1:80 -r 10.1.0.2:8080"],
      `missing real server ${WEB} -> 10.1.0.2:8080 [ns/web]`,
    ),
    row(
      "a real server is added",
      ["ipvsadm -a -t 172.30.0.1:80 -r 192.0.2.99:80 -m -w 1"],
      `extra real server ${WEB} -> 192.0.2.99:80 [ns/web]`,
    ),
    row(
      "a real server gets nothing",
      ["ipvsadm -e -t 172.30.0.1:80 -r 10.1.0.2:8080 -m -w 0"],
      `altered real server ${WEB} -> 10.1.0.2:8080 [ns/web]`,
    ),
    row(
      "a real server of UDP is another one",
      [
        "ipvsadm -d -u 172.30.0.10:53 -r 10.1.0.53:53",
        "ipvsadm -a -u 172.30.0.10:53 -r 192.0.2.99:53 -m -w 1",
      ],
      "extra real server 172.30.0.10:53/UDP -> 192.0.2.99:53 [ns/dns]",
      "missing real server 172.30.0.10:53/UDP -> 10.1.0.53:53 [ns/dns]",
    ),
  ];
}

function setRows(): readonly DamageRow[] {
  return [
    row(
      "a cluster IP is forgotten",
      ["ipset del KUBE-CLUSTER-IP 172.30.0.1,tcp:80"],
      "missing ip set entry KUBE-CLUSTER-IP 172.30.0.1,tcp:80 [ns/web]",
    ),
    row(
      "a source range is forgotten",
      ["ipset del KUBE-LOAD-BALANCER-SOURCE-CIDR 192.0.2.3,tcp:80,203.0.113.0/24"],
      "missing ip set entry KUBE-LOAD-BALANCER-SOURCE-CIDR 192.0.2.3,tcp:80,203.0.113.0/24 " +
        "[ns/guarded]",
    ),
  ];
}

/** Does to a machine in memory what a line would do to the kernel. */
function damage({ kernel }: IpvsStage["machine"], text: string): void {
  for (const line of text.split("\n")) {
    const [tool = "", ...words] = line.split(" ");
    if (line === "ip link del kube-ipvs0") kernel.hasDevice = false;
    else if (tool === "ip" || tool === "ipset" || tool === "ipvsadm") {
      kernel.take(tool, words.join(" "));
    } else throw new Error(`Cannot do '${line}' to a machine in memory`);
  }
}

function textOf({ kind, object, name, key }: DataPlaneDifference): string {
  const service = key === undefined ? "" : ` [${key.replace(/[:/](TCP|UDP)$/, "")}]`;
  return `${kind} ${object} ${name}${service}`;
}

Deno.test("compare() names each damage to objects of ipvs mode, and repair() corrects nothing else", async (t) => {
  await using stage = await IpvsStage.started();
  const nodePortAddresses = [parseIpAddress("198.51.100.1")];
  const plan = testProxyPlan(damagedServices(), { shared: { nodePortAddresses } });
  await stage.sync(plan);
  const foreign = "-A -t 198.51.100.7:80 -s wlc";
  stage.machine.kernel.take("ipvsadm", foreign);
  const before = stage.machine.dump();
  for (const row of IPVS_DAMAGE) {
    await t.step(row.name, async () => {
      await using other = new IpvsStage(stage.machine);
      damage(stage.machine, row.damage);
      const found = await other.backend.compare?.(plan) ?? [];
      assertEquals(found.map(textOf).sort(), [...row.found].sort());
      const writes = await stage.writesOf(async () => {
        await stage.backend.repair(plan);
      });
      assertEquals(await other.backend.compare?.(plan), []);
      assertEquals(writes.length <= 2, true, writes.join());
      assertEquals(stage.machine.dump(), before);
    });
  }
});
