"""A telephone made of PJSUA (PJSIP's user agent library, unmodified): registers, answers, and calls whom it is told to.

Its sound device is a null device; it plays a tone and counts the RTP packets that come. What happens is printed, a line each.
SIGTERM hangs up, and ends the registration.
"""

import argparse
import signal

import pjsua2 as pj

said = argparse.ArgumentParser()
for name in ["user", "password", "transport", "address", "proxy"]:
    said.add_argument(f"--{name}", required=True)
said.add_argument("--call", help="whom, once registered")
said = said.parse_args()
domain = "a.example"
calls = []
has_called = is_over = False


def tell(*words):
    print(*words, flush=True)


def stop(*_):
    global is_over
    is_over = True


class Call(pj.Call):
    heard = 0

    def onCallState(self, _):
        info = self.getInfo()
        tell("call", info.stateText, info.lastStatusCode)
        if info.state == pj.PJSIP_INV_STATE_DISCONNECTED:
            calls.remove(self)

    def onCallMediaState(self, _):
        if self.getInfo().media[0].status == pj.PJSUA_CALL_MEDIA_ACTIVE:
            tone.startTransmit(self.getAudioMedia(0))

    def count(self):
        info = self.getInfo()
        if not self.heard and info.state == pj.PJSIP_INV_STATE_CONFIRMED and info.media:
            self.heard = self.getStreamStat(0).rtcp.rxStat.pkt
            if self.heard:
                tell("hears")


class Account(pj.Account):
    def onRegState(self, state):
        global has_called
        tell("registration", state.code, state.expiration)
        if said.call and state.code == 200 and not has_called:
            has_called = True
            calls.append(Call(self))
            calls[0].makeCall(f"sip:{said.call}@{domain}", pj.CallOpParam(True))

    def onIncomingCall(self, asked):
        calls.append(Call(self, asked.callId))
        answer = pj.CallOpParam()
        answer.statusCode = 200
        calls[-1].answer(answer)


def transport_of(name):
    kind = {"udp": pj.PJSIP_TRANSPORT_UDP, "tcp": pj.PJSIP_TRANSPORT_TCP}[name]
    config = pj.TransportConfig()
    config.boundAddress, config.port = said.address, 5070
    return phone.transportCreate(kind, config)


def account_of(transport):
    config = pj.AccountConfig()
    config.idUri = f"sip:{said.user}@{domain}"
    config.regConfig.registrarUri = f"sip:{domain}"
    config.sipConfig.authCreds.append(pj.AuthCredInfo("digest", "*", said.user, 0, said.password))
    config.sipConfig.proxies.append(f"sip:{said.proxy};transport={said.transport};lr")
    config.sipConfig.transportId = transport
    config.mediaConfig.transportConfig.boundAddress = said.address
    account = Account()
    account.create(config)
    return account


signal.signal(signal.SIGTERM, stop)
phone = pj.Endpoint()
phone.libCreate()
config = pj.EpConfig()
config.logConfig.level = config.logConfig.consoleLevel = 4
config.uaConfig.threadCnt, config.uaConfig.mainThreadOnly = 0, True
phone.libInit(config)
phone.audDevManager().setNullDev()
transport = transport_of(said.transport)
phone.libStart()
tone = pj.ToneGenerator()
tone.createToneGenerator()
sound = pj.ToneDesc()
sound.freq1, sound.on_msec, sound.off_msec = 440, 1000, 0
sounds = pj.ToneDescVector()
sounds.append(sound)
tone.play(sounds, True)
account = account_of(transport)
while not is_over:
    phone.libHandleEvents(20)
    for call in calls:
        call.count()
phone.hangupAllCalls()
while calls:
    phone.libHandleEvents(20)
# Python must not take these apart after the library is gone.
del tone, account
phone.libDestroy()
