/** TLS ClientHellos, also such as no client sends. */

export interface TestHello {
  /** The entries of the server name extension, as text of one byte for each character. @default {no extension} */
  readonly names?: readonly string[];
  /** Other extensions before it: their type, and their bytes. @default {[]} */
  readonly extensions?: readonly (readonly [type: number, bytes: readonly number[]])[];
  /** How often the server name extension is there. @default {1} */
  readonly times?: number;
  /** The type of names. @default {0} */
  readonly nameType?: number;
  /** `client_version`. @default {0x0303} */
  readonly version?: number;
  /** Bytes of the handshake in each record. @default {all of them} */
  readonly fragment?: number;
  /** Whether there are extensions at all, which TLS 1.0 does not require. @default {true} */
  readonly hasExtensions?: boolean;
}

/** A ClientHello in its records. */
export function testClientHello(
  {
    names,
    extensions = [],
    times = 1,
    nameType = 0,
    version = 0x0303,
    fragment = Infinity,
    hasExtensions = true,
  }: TestHello = {},
): Uint8Array<ArrayBuffer> {
  const list = (names ?? []).flatMap((name) => [
    nameType,
    ...vector(2, [...name].map((letter) => letter.charCodeAt(0))),
  ]);
  const named = names ? Array(times).fill([0, vector(2, list)]) : [];
  const all = [...extensions, ...named] as readonly (readonly [number, readonly number[]])[];
  const body = [
    ...number(2, version),
    ...Array(32).fill(7),
    ...vector(1, Array(32).fill(8)),
    ...vector(2, [0x1a, 0x1a, 0x13, 0x01]),
    ...vector(1, [0]),
    ...hasExtensions
      ? vector(2, all.flatMap(([type, bytes]) => [...number(2, type), ...vector(2, bytes)]))
      : [],
  ];
  const message = [1, ...vector(3, body)];
  const records: number[] = [];
  const size = Math.min(fragment, message.length);
  for (let at = 0; at < message.length; at += size) {
    records.push(22, 3, 1, ...vector(2, message.slice(at, at + size)));
  }
  return new Uint8Array(records);
}

function number(size: number, value: number): readonly number[] {
  return Array.from({ length: size }, (_, at) => Math.floor(value / 256 ** (size - 1 - at)) % 256);
}

function vector(size: number, bytes: readonly number[]): readonly number[] {
  return [...number(size, bytes.length), ...bytes];
}
