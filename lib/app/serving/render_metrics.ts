/**
 * The answer to a scrape.
 *
 * @module
 */
import type { MetricsAnswer } from "../../metrics/scrape.ts";
import type { ProxyMetrics } from "../../metrics/proxy_metrics.ts";

/** Everything that the metrics have to say. */
export async function renderMetrics(metrics: ProxyMetrics): Promise<MetricsAnswer> {
  const { contentType, body } = await metrics.render();
  const services = metrics.renderServices();
  if (services === undefined) return { contentType, body };
  const encoder = new TextEncoder();
  const pieces = [encoder.encode(body)];
  for await (const piece of services) pieces.push(encoder.encode(piece));
  return { contentType, body: pieces };
}
