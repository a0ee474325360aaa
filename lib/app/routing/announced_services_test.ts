import { serviceSyncEvent } from "../../../tests/support/builders/sync_events.ts";
import { assertEquals } from "@std/assert";
import { ROUTED_SERVICE } from "../../api/kinds/routed_service.ts";
import { InformerSet } from "../../kube/informer_set.ts";
import { type IpAddress, parseIpAddress } from "../../net/ip_address.ts";
import type { PlanChanges, ProxyPlan } from "../../proxy/proxy_plan.ts";
import type { ServicePlan } from "../../proxy/service_plan.ts";
import type { ServiceKey, ServicePortKey } from "../../proxy/service_port_name.ts";
import { AnnouncedServices } from "./announced_services.ts";

const WEB = "default/web" as ServiceKey;
const PORT = "default/web/TCP" as ServicePortKey;
const VIP = parseIpAddress("192.0.2.1");

/** A plan with one port of the Service `web`, or none. */
function planWith(vips: readonly IpAddress[] | undefined): ProxyPlan {
  const port = {
    clusterIp: parseIpAddress("172.30.0.41"),
    externalIps: [],
    loadBalancerVips: vips ?? [],
    internal: { kind: "forward" },
    external: { kind: "forward" },
    endpoints: [],
  } as unknown as ServicePlan;
  const services = new Map(vips ? [[PORT, port]] : []);
  return { family: "IPv4", services, shared: { serviceCidrs: [] } } as unknown as ProxyPlan;
}

function changesOf(plan: ProxyPlan, removed: ReadonlyMap<ServicePortKey, ServicePlan> = new Map()) {
  const upserted = new Set(plan.services.keys());
  return { upserted, removed, shared: false, everything: false } as PlanChanges;
}

function create(isExempt?: (address: IpAddress) => boolean) {
  const informers = new InformerSet();
  const informer = informers.subscribe(ROUTED_SERVICE);
  const services = new AnnouncedServices({ informers, ...(isExempt && { isExempt }) });
  const notified: string[] = [];
  services.follow((keys, withVips) => {
    notified.push(`${[...keys]} ${withVips.size > 0 ? "with" : "without"} addresses`);
  }, () => notified.push("ranges"));
  const vips = () =>
    services.of(WEB)?.addresses.filter(({ kind }) => kind === "loadBalancerIps")
      .map(({ address }) => address);
  return { informer, services, notified, vips };
}

function synced(
  services: AnnouncedServices,
  ...event: [ProxyPlan, PlanChanges, Parameters<typeof serviceSyncEvent>[4]?]
): void {
  services.on(serviceSyncEvent("synced", "IPv4", ...event));
}

Deno.test("AnnouncedServices has the addresses of a Service while its rules are in force", () => {
  const { services, notified, vips } = create();
  assertEquals([services.of(WEB), services.complete.size], [undefined, 0]);
  const plan = planWith([VIP]);
  synced(services, plan, changesOf(plan));
  assertEquals([vips(), services.complete.has("IPv4")], [[VIP], true]);
  const none = planWith(undefined);
  synced(services, none, changesOf(none, plan.services));
  assertEquals(services.of(WEB), undefined);
  const text = "default/web with addresses";
  assertEquals(notified, [text, text], "also for addresses that it had");
});

Deno.test("AnnouncedServices leaves out what is in quarantine, and has it again afterwards", () => {
  const { services, notified, vips } = create();
  const plan = planWith([VIP, parseIpAddress("192.0.2.2")]);
  const reason = "Address in use";
  const quarantined = (...items: Parameters<typeof serviceSyncEvent>[4] & object) =>
    synced(services, plan, changesOf(planWith(undefined)), items);
  const item = { key: PORT, address: "192.0.2.1:80/TCP", reason };
  synced(services, plan, changesOf(plan), [item]);
  assertEquals(vips(), ["192.0.2.2" as IpAddress]);
  quarantined({ key: PORT, reason });
  assertEquals(vips(), [], "the whole port");
  quarantined();
  assertEquals(vips(), [VIP, "192.0.2.2" as IpAddress]);
  assertEquals(notified.length, 3);
  quarantined();
  assertEquals(notified.length, 3, "nothing changed");
});

Deno.test("AnnouncedServices has an exempt address although it is in quarantine", () => {
  const { services, vips } = create((address) => address === VIP);
  const plan = planWith([VIP]);
  synced(services, plan, changesOf(plan), [{ key: PORT, reason: "it is not local" }]);
  assertEquals(vips(), [VIP]);
});
