/**
 * kube-relay as a process on loopback with one Service, for what its metrics port says.
 *
 * @module
 */
import { permissionFlags } from "../../../lib/os/permissions.ts";
import { servicePort, writeServiceManifest } from "../../bench/service_manifest.ts";
import { eventually } from "../eventually.ts";
import { programFile } from "../drivers/program_file.ts";
import { readToEnd, TcpServer, writeFully } from "../drivers/tcp_peers.ts";
import { unusedPort } from "../drivers/unused_port.ts";
import { ownFlags } from "../drivers/own_flags.ts";

/** A running kube-relay in userspace mode with `--service-counters`, and its Service `default/web`. */
export interface MetricsRelay extends AsyncDisposable {
  /** The text of `/metrics`, as soon as it is as wanted. */
  scrapeWhen(isSo: (text: string) => boolean): Promise<string>;
  /** Sends a text through the Service, whose endpoint returns it. */
  exchange(text: string): Promise<string>;
  removeService(): Promise<void>;
}

const MAIN = programFile(new URL("../../../main.ts", import.meta.url));
const CLUSTER_IP = "127.96.7.1";

/** Starts it; it is on its way up when this resolves. */
export async function startMetricsRelay(): Promise<MetricsRelay> {
  const folder = await Deno.makeTempDir({ prefix: "kube-relay-metrics-" });
  const endpoint = TcpServer.start(async (connection) => {
    const { text } = await readToEnd(connection);
    await writeFully(connection, new TextEncoder().encode(text));
    await connection.closeWrite();
  });
  const manifest = `${folder}/manifests/web.yaml`;
  await Deno.mkdir(`${folder}/manifests`);
  await Deno.writeTextFile(
    manifest,
    writeServiceManifest({
      name: "web",
      clusterIp: CLUSTER_IP,
      protocol: "TCP",
      endpoints: ["127.0.0.1"],
      endpointPort: endpoint.port,
    }),
  );
  const metricsPort = unusedPort();
  const process = startProcess(folder, metricsPort);
  return {
    scrapeWhen: (isSo) => scrapeWhen(`http://127.0.0.1:${metricsPort}/metrics`, isSo),
    exchange,
    removeService: () => Deno.remove(manifest),
    async [Symbol.asyncDispose]() {
      process.kill("SIGTERM");
      await process.status;
      await endpoint[Symbol.asyncDispose]();
      await Deno.remove(folder, { recursive: true });
    },
  };
}

function startProcess(folder: string, metricsPort: number): Deno.ChildProcess {
  return new Deno.Command(Deno.execPath(), {
    args: [
      ...["run", ...permissionFlags(), "--unstable-net", "--quiet", "--no-check", MAIN],
      "--mode=userspace",
      "--address-mode=none",
      "--service-counters",
      `--manifests=${folder}/manifests`,
      ...ownFlags(folder, { metricsPort }),
    ],
    stdin: "null",
    stdout: "null",
    stderr: "null",
  }).spawn();
}

async function scrapeWhen(url: string, isSo: (text: string) => boolean): Promise<string> {
  return await eventually("metrics as wanted", async () => {
    const response = await fetch(url).catch(() => undefined);
    const text = await response?.text();
    return text !== undefined && isSo(text) ? text : undefined;
  });
}

async function exchange(text: string): Promise<string> {
  using client = await Deno.connect({ hostname: CLUSTER_IP, port: servicePort("TCP") });
  await writeFully(client, new TextEncoder().encode(text));
  await client.closeWrite();
  return (await readToEnd(client)).text;
}
