// deno-lint-ignore-file no-console -- its output is what it is for
/**
 * The baseline of a start: a program that reads the lists of Services and EndpointSlices, parses
 * each answer and keeps nothing.
 */
import process from "node:process";
import type { ApiMachinery } from "../../support/stages/api_machinery.ts";

/** The output, as JSON. */
export interface DecodingCost {
  /** From the first request on. */
  readonly seconds: number;
  /** CPU of the process until then, its own start included. */
  readonly cpuSeconds: number;
}

const PATHS = ["/api/v1/services", "/apis/discovery.k8s.io/v1/endpointslices"];

/** Runs the program; `folder` is for the certificate of the server. */
export async function measureDecoding(
  machinery: Pick<ApiMachinery, "url" | "ca" | "token">,
  folder: string,
): Promise<DecodingCost> {
  const authority = `${folder}/decoding-ca.crt`;
  await Deno.writeTextFile(authority, machinery.ca);
  const { code, stdout, stderr } = await new Deno.Command(Deno.execPath(), {
    args: ["run", "--quiet", "--no-prompt", "--no-check", "--allow-net", "--allow-read"]
      .concat(import.meta.url, machinery.url, authority, machinery.token()),
  }).output();
  const text = new TextDecoder();
  if (code !== 0) throw new Error(`Cannot measure the decoding: ${text.decode(stderr)}`);
  return JSON.parse(text.decode(stdout));
}

if (import.meta.main) {
  const [url, authority = "", token] = Deno.args;
  using client = Deno.createHttpClient({ caCerts: [await Deno.readTextFile(authority)] });
  const headers = { authorization: `Bearer ${token}` };
  const startedAt = performance.now();
  await Promise.all(PATHS.map(async (path) => {
    const answer = await fetch(`${url}${path}`, { client, headers });
    const { items } = await answer.json();
    if (!answer.ok || items.length === 0) throw new Error(`${path}: ${answer.status}`);
  }));
  const { user, system } = process.cpuUsage();
  const cost: DecodingCost = {
    seconds: (performance.now() - startedAt) / 1000,
    cpuSeconds: (user + system) / 1e6,
  };
  console.log(JSON.stringify(cost));
}
