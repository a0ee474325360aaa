/**
 * Manifests of many Services, for benchmarks of the tools that look at a node.
 *
 * @module
 */
import { testEndpointSlice, testNode, testService } from "../../support/builders/builders.ts";
import { manifestText, rawObjects } from "../../support/builders/raw_objects.ts";

const SERVICES_PER_FILE = 500;

/** Writes a Node and a number of Services, each with two endpoints, to a new folder. */
export async function writeManifests(at: string, services: number): Promise<void> {
  await Deno.mkdir(at);
  await Deno.writeTextFile(`${at}/node.json`, manifestText(rawObjects("Node", testNode())));
  for (let from = 0; from < services; from += SERVICES_PER_FILE) {
    const indexes = Array.from(
      { length: Math.min(SERVICES_PER_FILE, services - from) },
      (_, index) => from + index,
    );
    const items = indexes.flatMap((index) => [
      ...rawObjects("Service", serviceOf(index)),
      ...rawObjects("EndpointSlice", sliceOf(index)),
    ]);
    await Deno.writeTextFile(`${at}/${from}.json`, manifestText(items));
  }
}

function serviceOf(index: number) {
  const clusterIP = `172.30.${index >> 8}.${index & 255}`;
  return testService(`ns${index % 50}/service-${index}`, {
    clusterIP,
    ports: [{ name: "http", port: 80, protocol: "TCP" }],
    ...(index % 10 === 0 &&
      { type: "NodePort", ports: [{ name: "http", port: 80, nodePort: 30_000 + index / 10 }] }),
  });
}

function sliceOf(index: number) {
  const pod = (node: number) => `10.${180 + node}.${index >> 8}.${index & 255}`;
  return testEndpointSlice(`ns${index % 50}/service-${index}`, {
    endpoints: [pod(0), pod(1)],
    ports: [{ name: "http", protocol: "TCP", port: 8080 }],
  });
}
