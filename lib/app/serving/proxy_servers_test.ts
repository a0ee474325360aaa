import { assertEquals, assertStringIncludes } from "@std/assert";
import { ProxyMetrics } from "../../metrics/proxy_metrics.ts";
import { Scrape } from "../../metrics/scrape.ts";
import { ServiceTrafficTable } from "../../proxy/service_traffic.ts";
import { renderMetrics } from "./proxy_servers.ts";

Deno.test("renderMetrics() gives a text if Services are not counted", async () => {
  const { contentType, body } = await renderMetrics(
    new ProxyMetrics({ version: "1.2.3", mode: "userspace" }),
  );
  assertEquals([typeof body, contentType.split(";")[0]], ["string", "text/plain"]);
});

Deno.test("renderMetrics() has the Services after everything else", async () => {
  const traffic = new ServiceTrafficTable();
  const name = { namespace: "demo", name: "wéb", port: "", protocol: "TCP" } as const;
  traffic.of("IPv4").enter(name).opened = 7;
  const answer = await renderMetrics(
    new ProxyMetrics({ version: "1.2.3", mode: "userspace", traffic }),
  );
  const text = await (await new Scrape(answer).answer({ headers: new Headers() })).text();
  const [before, after] = text.split("# HELP kube_relay_service_received_bytes_total");
  assertStringIncludes(before!, "process_start_time_seconds");
  assertStringIncludes(after!, 'service="wéb",port_name="",protocol="TCP",ip_family="IPv4"} 7\n');
});
