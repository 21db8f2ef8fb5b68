"use strict";
const TEXTS = {
  en: {
    interface: "Interface", from: "From", to: "To", swap: "swap the languages", key: "API key",
    text: "Text", translation: "Translation", copy: "copy", copied: "copied",
    hint: "The text is translated as you type; Ctrl+Enter translates at once.",
    more: "more about the translation", alternatives: "Alternatives", attention: "Attention",
    none: "Alternative translations of each sentence, with their scores: log p divided by the length penalty.",
    look: "Where every attention head looks, word by word.", sentence: "Sentence", reference: "HTTP interface",
    count: (now, most) => `${now} / ${most} characters`,
    attends: (word, others) => `“${word}” attends most to ${others}`,
    busy: (seconds) => `The server is busy; trying again in ${seconds} s.`,
    lost: "The server does not answer. Your text is still here; continue typing to try again.",
    noCopy: "The browser does not allow this page to copy: select and copy the text yourself.",
    flaws: {
      echo: "may not be translated", repetition: "repeats itself", truncation: "may be cut short",
    },
    refusals: {},
  },
  ko: {
    interface: "화면 언어", from: "원문 언어", to: "번역 언어", swap: "언어 맞바꾸기", key: "API 키",
    text: "원문", translation: "번역문", copy: "복사", copied: "복사했습니다",
    hint: "입력하는 동안 번역합니다. Ctrl+Enter를 누르면 바로 번역합니다.",
    more: "번역에 대한 추가 정보", alternatives: "다른 번역", attention: "어텐션",
    none: "각 문장의 다른 번역 후보와 점수(log p를 길이 페널티로 나눈 값)입니다.",
    look: "어텐션 헤드마다 각 단어가 어디에 주목하는지 보여 줍니다.", sentence: "문장", reference: "HTTP 인터페이스",
    count: (now, most) => `${now} / ${most}자`,
    attends: (word, others) => `“${word}”의 어텐션이 가장 많이 향하는 단어: ${others}`,
    busy: (seconds) => `서버가 혼잡합니다. ${seconds}초 뒤에 다시 시도합니다.`,
    lost: "서버가 응답하지 않습니다. 입력한 글은 그대로 남아 있습니다. 이어서 입력하면 다시 시도합니다.",
    noCopy: "브라우저가 이 페이지의 자동 복사를 허용하지 않습니다. 번역문을 직접 선택해 복사해 주세요.",
    flaws: {
      echo: "번역되지 않았을 수 있습니다", repetition: "같은 말이 되풀이됩니다",
      truncation: "중간에 잘렸을 수 있습니다",
    },
    refusals: { // by the server's English message, with # for each number
      "Please contact the server operator to get an API key":
        "API 키가 필요합니다. 서버 운영자에게 문의해 주세요.",
      "Invalid API key": "API 키가 올바르지 않습니다.",
      "Slowdown: # per # minute": "요청이 너무 잦습니다. 잠시 기다려 주세요.",
      "The server is busy: try again later": "서버가 혼잡합니다. 잠시 뒤에 다시 시도해 주세요.",
      "The request was received too slowly": "요청을 받는 데 너무 오래 걸렸습니다.",
      "Not translated within # seconds: send less at a time":
        "제한 시간 안에 번역하지 못했습니다. 글을 나누어 번역해 주세요.",
      "Invalid request: request (#) exceeds text limit (#)":
        "글이 너무 깁니다. 나누어 번역해 주세요.",
      "Invalid request: text: give one sentence that is not too long":
        "어텐션은 너무 길지 않은 문장 하나에 대해서만 볼 수 있습니다.",
      "Invalid request: attention: this model shows no attention":
        "이 모델은 어텐션을 보여 주지 않습니다.",
      "Internal error": "서버에서 오류가 났습니다.",
    },
  },
};
