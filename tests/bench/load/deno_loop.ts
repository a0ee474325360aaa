// deno-lint-ignore-file no-console -- what it prints is what it is for
/**
 * Forwards `TCP` or `UDP` to a server with nothing but loops of reads and writes: what Deno
 * itself costs. Prints its port.
 *
 * @module
 */
const [protocol = "", to = "", serverPort = ""] = Deno.args;
const hostname = "127.0.0.1";
const server = { hostname: to, port: Number(serverPort) };
const BUFFER_BYTES = 65_536;

if (protocol === "TCP") await forwardTcp();
else await forwardUdp();

async function forwardTcp(): Promise<void> {
  const listener = Deno.listen({ hostname, port: 0, tcpBacklog: 4096 });
  console.log(listener.addr.port);
  for (;;) {
    const client = await listener.accept().catch(() => undefined);
    if (client) void relay(client).catch(() => {});
  }
}

async function relay(client: Deno.TcpConn): Promise<void> {
  using _client = client;
  using endpoint = await Deno.connect(server);
  await Promise.all([copy(client, endpoint), copy(endpoint, client)]).catch(() => {});
}

async function copy(from: Deno.TcpConn, to: Deno.TcpConn): Promise<void> {
  const buffer = new Uint8Array(BUFFER_BYTES);
  for (let count; (count = await from.read(buffer)) !== null;) {
    for (let done = 0; done < count;) done += await to.write(buffer.subarray(done, count));
  }
  await to.closeWrite();
}

async function forwardUdp(): Promise<void> {
  const socket = Deno.listenDatagram({ transport: "udp", hostname, port: 0 });
  console.log((socket.addr as Deno.NetAddr).port);
  const flows = new Map<string, Deno.DatagramConn>();
  const to: Deno.NetAddr = { transport: "udp", ...server };
  const buffer = new Uint8Array(BUFFER_BYTES);
  for (;;) {
    const [data, from] = await socket.receive(buffer);
    const client = from as Deno.NetAddr;
    const key = `${client.hostname} ${client.port}`;
    let flow = flows.get(key);
    if (!flow) {
      flow = Deno.listenDatagram({ transport: "udp", hostname: "0.0.0.0", port: 0 });
      flows.set(key, flow);
      void sendReplies(flow, (reply) => socket.send(reply, client));
    }
    await flow.send(data, to);
  }
}

async function sendReplies(
  flow: Deno.DatagramConn,
  send: (reply: Uint8Array) => Promise<number>,
): Promise<void> {
  const buffer = new Uint8Array(BUFFER_BYTES);
  for (;;) {
    const [reply, from] = await flow.receive(buffer);
    const { hostname, port } = from as Deno.NetAddr;
    if (port === server.port && hostname === server.hostname) await send(reply);
  }
}
